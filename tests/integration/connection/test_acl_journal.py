"""The rights that docs/reference/acl.md adds for a journal."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.commands.shell import BIN
from tests.support.conditions import until
from tests.support.journal.stores import DAY_MS, addition, in_redis, journaled
from tests.support.servers.acl import PAGE, denials, url_of
from tests.support.store.keyspace import clock_ms


@pytest.fixture
def layout() -> str:
    return "hash"


def test_the_rights_for_a_journal(users: PrivateRedis, tmp_path: Path) -> None:
    """User transfer may promote, user caretaker take back and compare, and user status look, with no denial."""
    text = PAGE.read_text(encoding="utf-8").partition("## A journal\n")[2]
    found = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert found
    for name in ("shop", "transfer", "caretaker"):
        users.client().execute_command("ACL", "SETUSER", name, *found[1].split())
    users.client().execute_command("ACL", "SETUSER", "status", "+hgetall")
    journal_url = f"sqlite:///{tmp_path}/journal.db"
    store = journaled(users.port, {"journal_url": journal_url})
    now_ms = clock_ms(store.client)
    store.journal.add([addition("soon", now_ms + 60_000, "celery"), addition("far", now_ms + DAY_MS, "celery")])

    def delayq(user: str, *args: str) -> list[str]:
        return [str(BIN / "delayq"), "-b", url_of(users, user), "--journal-url", journal_url, *args]

    process = subprocess.Popen(delayq("transfer", "transfer"), stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: in_redis(store, "celery") == ["soon"] or denials(users))
        assert [entry["object"] for entry in denials(users)] == []
        status = subprocess.run(delayq("status", "status", "--json"), capture_output=True, text=True, check=True)
        assert json.loads(status.stdout)["journal"]["promoter"]
        for command in ("journal check", "cancel --yes far soon"):
            done = subprocess.run(delayq("caretaker", *command.split()), capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        process.terminate()
        _, log = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0, log
    store.close()
    assert denials(users) == [], log
