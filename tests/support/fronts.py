"""A contract for import-linter: what is in a room is imported from its front."""

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class FrontsContract(Contract):
    """Outside a room, only its package is imported, and not the modules in it. A room is a package below ``packages``.

    Configuration options:
        - packages: What has rooms.
        - open_modules: Modules in rooms that may be imported by their names: each is a namespace of its own, or is
          imported when it is first used, because it brings in much.
    """

    type_name = "fronts"
    packages = fields.ListField(subfield=fields.StringField())
    open_modules = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Finds imports past a front, and open modules that nobody imports from outside."""
        packages: Any = self.packages
        opened: Any = self.open_modules or set()
        found, used = [], set()
        for room in (room for package in packages for room in graph.find_children(package)):
            inside = graph.find_descendants(room)
            for module in sorted(inside):
                outside = graph.find_modules_that_directly_import(module) - inside - {room}
                if module in opened:
                    used |= {module} if outside else set()
                else:
                    found += [f"{importer} -> {module}" for importer in sorted(outside)]
        unused = sorted(opened - used)
        return ContractCheck(kept=not (found or unused), metadata={"past": found, "unused": unused})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Prints what breaks the contract."""
        for line in check.metadata["past"]:
            output.print_error(f"{line}: import it from the room's front", bold=False)
        for module in check.metadata["unused"]:
            output.print_error(f"{module} is open, and nobody outside imports it", bold=False)
