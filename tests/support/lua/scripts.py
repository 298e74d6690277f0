"""The Lua files: operations, includes, and the forms of backup that they are for."""

from kombu_delayq import scripts
from kombu_delayq.options import BACKUPS

LUA = sorted(scripts.directory().rglob("*.lua"))
OPERATIONS = [path.stem for path in sorted(scripts.directory().glob("*.lua"))]
INCLUDES = [path.relative_to(scripts.directory()).as_posix() for path in LUA if "include" in path.parts]
#: Operations that are for one form of backup only.
ONLY = {
    **dict.fromkeys(("forget", "repair_backup", "vacate"), ("hash",)),
    **dict.fromkeys(("index", "repair_list"), ("list",)),
}
#: Each operation with each form of backup that it is for.
FORMS = [(operation, backup) for operation in OPERATIONS for backup in ONLY.get(operation, BACKUPS)]
