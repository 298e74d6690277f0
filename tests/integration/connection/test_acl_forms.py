"""Users of an ACL that have the rights for one layout, for both, or for a journal."""

import json
import logging
import re
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import redis
from redis.exceptions import NoPermissionError, ResponseError

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.redisson_layout import RedissonKeys
from kombu_delayq.store.types import Offer
from tests.support.commands.shell import BIN
from tests.support.conditions import until
from tests.support.journal.stores import DAY_MS, addition, in_redis, journaled
from tests.support.servers.acl import PAGE, denials, rights_of_list, url_of
from tests.support.store.keyspace import clock_ms
from tests.support.workers.held import KEYS

QUEUE = "celery"


def entry_of(message: bytes) -> bytes:
    """Returns a message as Redisson packs it."""
    return struct.pack("<dQ", time.time(), len(message)) + message


def offer_as_redisson(client: redis.Redis, message: bytes, due_ms: float) -> None:
    keys, entry = KEYS, entry_of(message)
    client.zadd(RedissonKeys(keys).timeout(QUEUE), {entry: due_ms})
    client.rpush(RedissonKeys(keys).listed(QUEUE), entry)


def times_denied(server: PrivateRedis) -> int:
    """Returns how often a user was denied a key."""
    return sum(int(entry["count"]) for entry in server.client().acl_log() if entry["reason"] == "key")


def offer(store: DelayStore, *ids: str, due: str = "+600000") -> None:
    store.delivery.offer(QUEUE, *(Offer(each, due, 0, json.dumps({"headers": {"id": each}})) for each in ids))


@pytest.fixture
def as_user(users: PrivateRedis, layout: str) -> Iterator[Callable[[str], DelayStore]]:
    """Makes a store with the rights of a user of the page."""
    made: list[DelayStore] = []

    def make(user: str) -> DelayStore:
        client = redis.Redis(port=users.port, username=user, password="password")
        made.append(DelayStore(client, KEYS, options=Options(layout=layout)))
        return made[-1]

    yield make
    for store in made:
        store.close()


def test_a_user_of_one_form_sees_no_change(
    users: PrivateRedis, as_user: Callable[[str], DelayStore], caplog: pytest.LogCaptureFixture
) -> None:
    """Who may touch the keys of the hash alone works as if there were no other layout; the log has a line of it."""
    admin = redis.Redis(port=users.port)
    offer(as_user("caretaker"), "ours")
    offer_as_redisson(admin, b"theirs", time.time() * 1000 + 60_000)
    store = as_user("caretaker")
    with caplog.at_level(logging.INFO, "kombu_delayq"):
        assert {form.layout for form in store.delivery.heads([QUEUE]).due_ms} == {"hash"}
        denied = times_denied(users)
        assert denied
        store.delivery.heads([QUEUE])
        store.queues.size(QUEUE)
    assert caplog.messages == [each for each in caplog.messages if "in the layout 'hash' only" in each]
    assert (len(caplog.messages), times_denied(users)) == (1, denied)
    assert admin.zcard(RedissonKeys(KEYS).timeout(QUEUE)) == 1


def use(store: DelayStore, admin: redis.Redis) -> None:
    """Does all that an app does with messages in Redisson's layout, those of other clients among them."""
    with closing(store.delivery.listen()) as listener:
        listener.follow([QUEUE])
        while listener.wait(0.05) is not None:
            pass
    offer(store, "first")
    store.lookup.cancel([QUEUE], ["first"])
    offer(store, *(f"due{n}" for n in range(800)), due="+0")
    offer(store, "x", "y", "z")
    offer_as_redisson(admin, b"theirs", time.time() * 1000 + 60_000)
    store.delivery.heads([QUEUE])
    while store.delivery.transfer(QUEUE).moved:
        pass
    store.lookup.get([QUEUE], ["nobody"])
    [moved] = store.lookup.get([QUEUE], ["x"])["x"]
    store.lookup.reschedule(QUEUE, [Change(moved, moved.due_ms + 1, moved.body or b"")])
    [moved] = store.lookup.get([QUEUE], ["y"])["y"]
    store.lookup.run_now(QUEUE, [Change(moved, moved.due_ms, moved.body or b"")])
    store.scan.browse(QUEUE)
    offer(store, *(f"gone{n}" for n in range(1200)))
    admin.zremrangebyrank(RedissonKeys(KEYS).timeout(QUEUE), 2, -1)  # as Redisson would: what is known of ids stays
    store.lookup.cancel([QUEUE], ["z"])
    store.queues.purge(QUEUE)
    admin.sadd(KEYS.queues, QUEUE)
    store.queues.forget_empty([QUEUE])


@pytest.mark.parametrize("layout", ["redisson"], indirect=True)
def test_the_form_of_redisson_needs_what_the_page_adds(
    users: PrivateRedis, as_user: Callable[[str], DelayStore]
) -> None:
    """User shop may do all with the rights that the page adds, and something is denied without any one of them."""
    admin = users.client()
    raw = redis.Redis(port=users.port)
    use(as_user("shop"), raw)
    assert denials(users) == []
    given = admin.acl_getuser("shop")
    keys, channels = (each for each in (str(given["keys"]), str(given["channels"])))
    assert "redisson" in keys
    assert "redisson" in channels
    for right in rights_of_list()[2:]:
        admin.flushdb()
        admin.script_flush()
        admin.execute_command("ACL", "SETUSER", "shop", right.replace("+", "-"))
        with suppress(NoPermissionError, ResponseError, ValueError, KeyError):
            use(as_user("shop"), raw)
        assert denials(users), right
        admin.execute_command("ACL", "SETUSER", "shop", right)
        admin.execute_command("ACL", "LOG", "RESET")


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
    store.journal.add([addition("soon", now_ms + 900_000, "celery"), addition("far", now_ms + DAY_MS, "celery")])

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
        _, log = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, log
    store.close()
    assert denials(users) == [], log
