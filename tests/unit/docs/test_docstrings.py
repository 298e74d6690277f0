"""Every test says in one sentence what it shows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[2]
_NEXT_SENTENCE = re.compile(r"[.!?]\s+[A-Z]")


def functions_in(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
            yield node


def complaint(docstring: str | None) -> str:
    """Returns what is wrong with a test's docstring, or an empty text."""
    if not docstring:
        return "has no docstring"
    summary, _, _ = docstring.partition("\n\n")
    if not summary.endswith("."):
        return "has a docstring that does not begin with a sentence"
    if _NEXT_SENTENCE.search(summary):
        return "has a docstring that begins with several sentences"
    return ""


def test_every_test_has_a_sentence() -> None:
    """Each test function's docstring is one sentence; why that is so may follow in a paragraph of its own."""
    tests = [(path, node) for path in sorted(TESTS.rglob("test_*.py")) for node in functions_in(path)]
    assert len(tests) > 1000
    wrong = [
        f"{path.relative_to(TESTS)}: {node.name} {reason}"
        for path, node in tests
        if (reason := complaint(ast.get_docstring(node)))
    ]
    assert wrong == []
