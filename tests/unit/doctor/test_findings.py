"""What checks and findings say of themselves, and what to do about a broker that cannot be used."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from kombu.connection import Connection
from redis.exceptions import AuthenticationError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_ext.doctor import Finding, Level, NoSuchText, all_checks, examination, explain, id_of
from kombu_delayq.errors import InvalidBrokerURL
from tests.support import ROOT

SOURCES = sorted({*ROOT.glob("celery_ext/doctor/*.py"), *ROOT.glob("celery_ext/*/checks.py")})


def test_each_check_has_a_name_of_its_own_and_a_question() -> None:
    """`ok` is the answer yes to the question of each."""
    names = [check.name for check in all_checks()]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)
    assert all(check.question.endswith("?") for check in all_checks())


def test_features_bring_their_checks() -> None:
    """A check in the folder of a feature is made with those that need the same, and nothing names it."""
    places = {check.name: check.look.__module__ for check in all_checks()}
    assert places["periodic"] == "celery_ext.periodic.checks"
    assert [*places].index("layout") < [*places].index("periodic") < [*places].index("workers")


def test_each_check_is_in_the_how_to() -> None:
    """The page has a line for each check."""
    page = (ROOT / "docs/how-to/doctor.md").read_text(encoding="utf-8")
    assert [check.name for check in all_checks() if f"- `{check.name}`: " not in page] == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_pages_of_findings_are_there(source: Path) -> None:
    """Each page and each heading to which a finding refers is in the documentation, and `--explain` finds it."""
    texts = [node.value for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))) if is_text(node)]
    for text in texts:
        if not (match := re.fullmatch(r"([\w/-]+\.md)(?:#([\w-]+))?", text)):
            continue
        assert (ROOT / "docs" / match[1]).is_file(), text
        assert explain(id_of(Finding(Level.ERROR, "", page=text))).startswith("#"), text


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_texts_are_found_by_page_section_and_alert() -> None:
    """A section ends before the next one of its depth, a name of an alert is one, and what is not there is an error."""
    section = explain("outage#of-stock-workers")
    assert section.startswith("### Of stock workers\n")
    assert len(re.findall(r"^#+ ", section, re.MULTILINE)) == 1
    assert explain("migrate").startswith("# ")
    assert "No transfer worker runs" in explain("DelayqNoLeader")
    for name in ("outage#nosuch", "nosuch", ""):
        with pytest.raises(NoSuchText):
            explain(name)


@pytest.mark.parametrize(
    ("error", "do"),
    [
        (
            RedisConnectionError("Error 111 connecting to localhost:1. Connection refused."),
            "start it, or mend host, port",
        ),
        (RedisTimeoutError("Timeout connecting to server"), "only where the server speaks TLS"),
        (RedisConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"), "?ssl_ca_certs=PATH"),
        (AuthenticationError("invalid username-password pair"), "mend the user and the password"),
        (InvalidBrokerURL("the scheme of the broker URL is missing"), "mend the URL as the message says"),
        (ResponseError("DB index is out of range"), "mend what the error says"),
    ],
)
def test_each_reason_has_its_remedy(monkeypatch: pytest.MonkeyPatch, error: Exception, do: str) -> None:
    """What the server or the client says decides."""

    def refuse(connection: Any) -> None:
        raise error

    monkeypatch.setattr(examination, "open_store", refuse)
    clock = [check for check in all_checks() if check.name == "clock"]
    found, _ = examination.examine(clock, None, lambda: Connection("memory://"))
    assert (found.check, str(found.level), do in found.do) == ("broker", "error", True), found
