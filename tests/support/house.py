"""Counts the house, and fails when a figure has grown past its bound in ``pyproject.toml``: ``make check`` runs it.

Whoever raises a bound says in the commit what it buys.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT
from tests.support.pages import DOCS

#: Our packages.
PACKAGES = ("kombu_delayq", "celery_ext")
NODES = r"^(is_of_one_node|is_of_node|has_nodes|has_slots|aside|NotSearched|is_away|shares?|slots|OF_ONE_SERVER)$"
LAYOUT = r"\bform\b|\bforms\b|backup|layout|redisson"


def main() -> int:
    """Prints each figure with its bound. Returns the exit code: 1 if one is past it."""
    bounds = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["house"]
    found = figures()
    assert found.keys() == bounds.keys(), found.keys() ^ bounds.keys()
    past = [name for name, figure in found.items() if figure > bounds[name]]
    for name, figure in found.items():
        print(f"{figure:>8,} of {bounds[name]:>7,} {name}" + (" <- too many" if name in past else ""))
    return 1 if past else 0


def figures() -> dict[str, int]:
    """Returns each figure by its name."""
    sources = {
        path: path.read_text(encoding="utf-8") for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    }
    trees = {path: ast.parse(source) for path, source in sources.items()}
    texts = [path.read_text(encoding="utf-8") for path in DOCS]
    return {
        "product-lines": _lines(sources),
        "code-lines": sum(map(_code_lines, sources.values(), trees.values())),
        "lua-lines": _lines((ROOT / "lua").rglob("*.lua")),
        "test-lines": _lines((ROOT / "tests").rglob("*.py")),
        "words-of-docs": sum(len(text.split()) for text in texts),
        "modules": len(sources),
        "longest-module": max(source.count("\n") for source in sources.values()),
        "nodes-outside-cluster": _named(trees, NODES, "cluster"),
        "journal-outside-journal": _named(trees, r"(?i)journal", "journal"),
        "branches-on-the-layout": sum(map(_branches, trees.values())),
    }


def _lines(paths: Iterator[Path] | dict[Path, str]) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def _code_lines(source: str, tree: ast.Module) -> int:
    """Counts lines that are neither empty, nor a comment, nor of a docstring."""
    of_docs: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            of_docs.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    return sum(bool(line) and not line.startswith("#") and number not in of_docs for number, line in lines)


def _named(trees: dict[Path, ast.Module], pattern: str, room: str) -> int:
    """Counts names in code that match, outside the folders of a room."""
    outside = [tree for path, tree in trees.items() if room not in path.relative_to(ROOT).parts]
    return sum(bool(re.search(pattern, name)) for tree in outside for name in map(_name_of, ast.walk(tree)) if name)


def _name_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.arg if isinstance(node, ast.arg | ast.keyword) else None


def _branches(tree: ast.Module) -> int:
    """Counts conditions that ask for the layout."""
    tests: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            tests.append(node.test)
        elif isinstance(node, ast.comprehension):
            tests += node.ifs
        elif isinstance(node, ast.Match):
            tests.append(node.subject)
    return sum(bool(re.search(LAYOUT, ast.unparse(test))) for test in tests)


if __name__ == "__main__":
    sys.exit(main())
