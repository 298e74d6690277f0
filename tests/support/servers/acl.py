"""The ACL users of docs/reference/acl.md on a server."""

import re
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from tests.support import ROOT

PAGE = ROOT / "docs" / "reference" / "acl.md"


@pytest.fixture
def users(own_server: PrivateRedis, layout: str) -> PrivateRedis:
    """A server that has the users of the page."""
    for name, command in commands_of_page().items():
        more = rights_of_list()[: 1 if name == "status" else None] if layout == "redisson" else []
        if own_server.slots:
            more += rights_in_slots(name)
        own_server.client().execute_command(*command, *more)
    return own_server


def commands_of_page() -> dict[str, list[str]]:
    """Returns the commands that make the users of the page, by the names of the users."""
    blocks = re.findall(r"```text\n(ACL SETUSER.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 6
    return {command[2]: command for command in map(str.split, blocks)}


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
    return denied_by(server.client())


def denied_by(client: redis.Redis) -> list[Any]:
    """Returns the same of a client of one node."""
    other = () if "~redisson" in str(client.acl_getuser("shop")["keys"]) else ("redisson_",)
    found = client.execute_command("ACL", "LOG")  # newer clients make a dict of each entry
    log = [entry if isinstance(entry, dict) else dict(zip(entry[::2], entry[1::2], strict=True)) for entry in found]
    return [entry for entry in log if not entry["object"].startswith(("client", *other))]


def url_of(server: PrivateRedis, user: str) -> str:
    """Returns the broker URL of a user."""
    return server.url.replace("redis://", f"redis://{user}:password@")
