"""The ACL users of docs/reference/acl.md on a server."""

import re
from typing import Any

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support import ROOT

PAGE = ROOT / "docs" / "reference" / "acl.md"


@pytest.fixture
def users(own_server: PrivateRedis, layout: str) -> PrivateRedis:
    """A server that has the users of the page."""
    blocks = re.findall(r"```text\n(ACL SETUSER.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 5
    for block in blocks:
        own_server.client().execute_command(*block.split())
        if layout == "redisson":
            name = block.split()[2]
            keys_alone = 1 if name == "status" else None
            own_server.client().execute_command("ACL", "SETUSER", name, *rights_of_list()[:keys_alone])
        if own_server.slots:
            own_server.client().execute_command("ACL", "SETUSER", block.split()[2], *rights_in_slots(block.split()[2]))
    return own_server


def rights_of_list() -> list[str]:
    """Returns the rights that the page adds for Redisson's layout, the keys first."""
    found = re.search(r"```text\n(~redisson.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1].split()


def rights_in_slots(user: str) -> list[str]:
    """Returns the rights that the page adds for Redis Cluster to those of a user."""
    text = PAGE.read_text(encoding="utf-8").partition("## Redis Cluster\n")[2].partition("\n## ")[0]
    found = re.search(r"```text\n(~.*?)```", text, re.DOTALL)
    assert found
    rows = re.findall(r"^\| (`.*?) \| `(.*?)` \|$", text, re.MULTILINE)
    assert rows
    more = [rights for users, rights in rows if f"`{user}`" in users]
    return " ".join([found[1], *more]).replace("\\|", "|").split()  # as a table writes it


def denials(server: PrivateRedis) -> list[Any]:
    """Returns what Redis has denied to users.

    Denials that do not matter are left out: of the name that a Redis client gives itself, and of the other layout.
    """
    other = () if "~redisson" in str(server.client().acl_getuser("shop")["keys"]) else ("redisson_",)
    found = server.client().execute_command("ACL", "LOG")  # newer clients make a dict of each entry
    log = [entry if isinstance(entry, dict) else dict(zip(entry[::2], entry[1::2], strict=True)) for entry in found]
    return [entry for entry in log if not entry["object"].startswith(("client", *other))]


def url_of(server: PrivateRedis, user: str) -> str:
    """Returns the broker URL of a user."""
    return server.url.replace("redis://", f"redis://{user}:password@")
