"""The documentation is in plain English: words and sentences that readers stumble over are not in it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import PAGES, named

#: Words that a reader without English as first language does not know.
_ODD = re.compile(r"\b(but for|as ever|anew|whoever)\b", re.IGNORECASE)
#: Blocks of code, parts that are made from the code, headings, and code within the text.
_LEFT_OUT = re.compile(r"^( *)```.*?^\1```$|<!-- generated.*?<!-- end -->|^#.*?$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|\|")


def sentences(text: str) -> Iterator[str]:
    """Yields the sentences of a page, of its tables and its lists too."""
    for block in _BLOCK.split(_LEFT_OUT.sub("X", text)):
        yield from re.split(r"(?<=[.!?:]) ", re.sub(r"\s+", " ", block).strip(" -*"))


def is_plain(sentence: str) -> bool:
    """Whether a sentence names its subject and has no odd word. A link may be named after a heading."""
    has_clause_as_subject = re.match(r"(What|Whoever)\b", sentence) and not sentence.endswith("?")
    return not has_clause_as_subject and not _ODD.search(sentence)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "changelog.md"], ids=named)
def test_sentences_are_plain(page: Path) -> None:
    """No sentence has a clause as its subject, such as "What waits is moved", and no odd word is used."""
    assert [each for each in sentences(page.read_text(encoding="utf-8")) if not is_plain(each)] == []


def test_a_sentence_that_is_not_plain_is_noticed() -> None:
    """It may stand in a list or a table; a question, a heading and a link may begin with the same word."""
    text = "# What waits\n\nWhat is it?\n\n- One.\n- What waits is\n  moved.\n\n| [What y](z) | All but for one |\n"
    assert [each for each in sentences(text) if not is_plain(each)] == ["What waits is moved.", "All but for one"]
