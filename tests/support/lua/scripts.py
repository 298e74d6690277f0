"""The Lua files: operations, includes, and the layouts that they are for."""

from kombu_delayq.options import LAYOUTS
from kombu_delayq.redis import scripts

LUA = sorted(scripts.directory().rglob("*.lua"))
OPERATIONS = sorted(scripts.operations())
INCLUDES = [path.relative_to(scripts.directory()).as_posix() for path in LUA if "include" in path.parts]
#: Operations that are for one layout only.
ONLY = {
    **dict.fromkeys(("repair_bodies", "forget_empty"), ("hash",)),
    **dict.fromkeys(("index", "repair_list"), ("redisson",)),
}
#: Each operation with each layout that it is for.
FORMS = [(operation, layout) for operation in OPERATIONS for layout in ONLY.get(operation, LAYOUTS)]
