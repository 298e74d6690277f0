import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from celery_ext.cli.daemon import MODULES
from celery_ext.serve.access.identity import Action
from celery_ext.serve.access.tokens import (
    InvalidTokens,
    Token,
    TokenFile,
    hash_of,
    new_secret,
    read_tokens,
    write_tokens,
)

SECRET = "dq_of-the-tests"
HASH = hash_of(SECRET)
ENTRY = {"name": "billing", "sha256": HASH, "actions": ["read"], "queues": ["orders.*"], "tasks": ["*"]}


def written(path: Path, *entries: Any) -> Path:
    path.write_text(json.dumps({"tokens": entries}), encoding="utf-8")
    path.chmod(0o600)
    return path


def test_a_token_is_found_by_itself_alone(tmp_path: Path) -> None:
    """The file has the hash; the token finds its entry, and nothing else does, least of all the hash."""
    tokens = read_tokens(written(tmp_path / "tokens.json", ENTRY))
    found = tokens.of_secret(SECRET)
    assert found is not None
    assert found.name == "billing"
    assert found.caller.queues == ("orders.*",)
    for other in ("", HASH, SECRET.upper(), SECRET + " ", "dq_\udcff", "dq_é"):
        assert tokens.of_secret(other) is None


def test_an_entry_is_read_as_it_was_written(tmp_path: Path) -> None:
    """All fields of a token survive the file, which only its owner may read."""
    token = Token(
        "a.b@c",
        HASH,
        frozenset({Action.ENQUEUE, Action.READ}),
        ("q*", "r"),
        ("t.*",),
        "5/m",
        datetime(2100, 1, 1, tzinfo=UTC),
    )
    path = tmp_path / "tokens.json"
    write_tokens(path, [token])
    assert read_tokens(path).all == (token,)
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["tokens.json"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": ""}, "name '' is not 1 to 64 letters"),
        ({"name": "a b"}, "name 'a b' is not 1 to 64 letters"),
        ({"name": "x" * 65}, "1 to 64 letters"),
        ({"name": "x\n"}, "1 to 64 letters"),
        ({"name": 5}, "name"),
        ({"sha256": SECRET}, "token billing: sha256 is not 64 hexadecimal digits"),
        ({"sha256": HASH.upper()}, "64 hexadecimal"),
        ({"sha256": f"{HASH}\n"}, "64 hexadecimal"),
        ({"sha256": None}, "sha256"),
        ({"actions": ["fly"]}, "fly"),
        ({"actions": "read"}, "actions"),
        ({"queues": "orders"}, "queues"),
        ({"tasks": [5]}, "tasks"),
        ({"rate": "fast"}, "fast"),
        ({"rate": 5}, "rate"),
        ({"expires": "soon"}, "expires"),
        ({"expires": 5}, "expires"),
        ({"expires": "2100-01-01T00:00:00"}, "zone"),
        ({"expire": "2100-01-01T00:00:00Z"}, "unknown field `expire`"),
    ],
    ids=str,
)
def test_a_wrong_entry_is_refused_with_its_reason(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    """The error names the file and the reason, and has no hash of a token in it."""
    with pytest.raises(InvalidTokens, match=reason) as caught:
        read_tokens(written(tmp_path / "tokens.json", ENTRY | change))
    assert "tokens.json" in str(caught.value)
    assert HASH not in str(caught.value)


@pytest.mark.parametrize("field", sorted(ENTRY))
def test_no_field_that_limits_a_token_may_be_missing(tmp_path: Path, field: str) -> None:
    """A token that names no queues, tasks or actions is no token for all of them."""
    with pytest.raises(InvalidTokens, match=f"missing required field `{field}`"):
        read_tokens(written(tmp_path / "tokens.json", {name: value for name, value in ENTRY.items() if name != field}))


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "5", '{"tokens": {}}', '{"tokens": [5]}', "\xff", "[" * 100_000], ids=range(8)
)
def test_what_is_no_file_of_tokens_is_refused(tmp_path: Path, content: str) -> None:
    """A broken file is an error of one kind, and so is one that is not there."""
    path = tmp_path / "tokens.json"
    path.write_text(content, encoding="latin-1")
    path.chmod(0o600)
    with pytest.raises(InvalidTokens, match=r"tokens\.json"):
        TokenFile(path)
    with pytest.raises(InvalidTokens, match="No such file"):
        TokenFile(tmp_path / "nowhere")


def test_two_tokens_with_one_name_or_hash_are_refused(tmp_path: Path) -> None:
    """A name means one token, because a session goes by it."""
    for other in ({"sha256": hash_of("dq_other")}, {"name": "other"}):
        with pytest.raises(InvalidTokens, match="two tokens"):
            read_tokens(written(tmp_path / "tokens.json", ENTRY, ENTRY | other))


def test_the_file_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new token counts at once, a removed one no more; while the file is broken or away the last good one counts."""
    path = written(tmp_path / "tokens.json", ENTRY)
    file = TokenFile(path)
    written(path, ENTRY, ENTRY | {"name": "new", "sha256": hash_of("dq_new")})
    assert file.tokens.of_secret("dq_new") is not None
    for breaking in (lambda: path.write_text("{"), path.unlink):
        caplog.clear()
        breaking()
        assert [file.tokens.of_secret("dq_new") is not None for _ in range(3)] == [True] * 3
        assert [record.levelno for record in caplog.records if "stay as they were" in record.message] == [logging.ERROR]
    written(path, ENTRY)
    assert file.tokens.of_secret("dq_new") is None
    assert file.tokens.of_secret(SECRET) is not None


@pytest.mark.parametrize(
    ("mode", "owner", "told"),
    [
        (0o600, 1000, False),
        (0o440, 1000, True),
        (0o604, 1000, True),
        (0o400, 0, False),
        (0o440, 0, False),
        (0o444, 0, True),
        (0o660, 0, True),
    ],
)
def test_a_file_that_others_may_read_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, told: bool
) -> None:
    """With a hash one can sign a session, so the server warns, but not of a group that may read a file of root's."""
    path = written(tmp_path / "tokens.json", ENTRY)
    found = os.stat_result((0o100000 | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "stat", lambda self: found)
    read_tokens(path)
    assert ("change its mode to 0600" in caplog.text) is told


def test_new_tokens_have_256_random_bits() -> None:
    """No two are the same, each is easily found in a text, and fits a header."""
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert {len(secret) for secret in made} == {46}
    assert all(secret.startswith("dq_") and secret.isascii() and secret.isprintable() for secret in made)


def test_a_token_ends_when_its_time_is_over() -> None:
    """A token may have an end, after which it is refused."""
    now = datetime.now(UTC)
    for expires, over in ((None, False), (now + timedelta(minutes=1), False), (now, True)):
        assert Token("a", HASH, frozenset(), (), (), expires=expires).has_expired() is over


#: Runs ``delayq`` as it is where the extra is not installed.
WITHOUT_THE_EXTRA = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(MODULES)}))
from celery_ext.cli import delayq
delayq()
"""


@pytest.mark.wide
def test_tokens_are_made_without_the_extra(tmp_path: Path) -> None:
    """Whoever makes, lists and removes tokens need not be able to run the server."""
    file = tmp_path / "tokens.json"

    def tokens(*arguments: str) -> str:
        command = [sys.executable, "-c", WITHOUT_THE_EXTRA, "tokens", *arguments, "--file", str(file)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert tokens("add", "billing", "--action", "read").startswith("dq_")
    assert "billing" in tokens("list")
    tokens("remove", "billing")
    assert read_tokens(file).all == ()
