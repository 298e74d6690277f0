"""Users of an ACL that have the rights for one layout, or for both."""

import json
import logging
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError, ResponseError

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Offer
from tests.support.servers.acl import denials, rights_of_list
from tests.support.workers.held import KEYS

QUEUE = "celery"

#: Operations, and what they give where the hash has message "ours" alone.
LOOKS: dict[str, tuple[Callable[[DelayStore], Any], Any]] = {
    "heads": (lambda store: {form.layout for form in store.delivery.heads([QUEUE]).due_ms}, {"hash"}),
    "stats": (lambda store: store.queues.stats(QUEUE).delayed, 1),
    "size": (lambda store: store.queues.size(QUEUE), 1),
    "count": (lambda store: store.scan.count(QUEUE), 1),
    "get": (lambda store: list(store.lookup.get([QUEUE], ["ours", "theirs"])), ["ours"]),
    "cancel": (lambda store: list(store.lookup.cancel([QUEUE], ["ours", "theirs"])), ["ours"]),
    "browse": (
        lambda store: ([each.id for each in store.scan.browse(QUEUE).messages], store.scan.browse(QUEUE).more),
        (["ours"], 0),
    ),
    "keep_alive": (lambda store: store.queues.keep_alive(QUEUE, 60_000), None),
    "purge": (lambda store: store.queues.purge(QUEUE), 1),
}


def entry_of(message: bytes) -> bytes:
    """Returns a message as Redisson packs it."""
    return struct.pack("<dQ", time.time(), len(message)) + message


def offer_as_redisson(client: redis.Redis, message: bytes, due_ms: float) -> None:
    keys, entry = KEYS, entry_of(message)
    client.zadd(keys.timeout(QUEUE), {entry: due_ms})
    client.rpush(keys.listed(QUEUE), entry)


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


@pytest.mark.parametrize("operation", ["heads"])
def test_a_user_of_one_form_sees_no_change(
    users: PrivateRedis, as_user: Callable[[str], DelayStore], operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who may touch the keys of the hash alone works as if there were no other layout; the log has a line of it."""
    admin = redis.Redis(port=users.port)
    offer(as_user("caretaker"), "ours")
    offer_as_redisson(admin, b"theirs", time.time() * 1000 + 60_000)
    look, expected = LOOKS[operation]
    store = as_user("caretaker")
    with caplog.at_level(logging.INFO, "kombu_delayq"):
        assert look(store) == expected
        denied = times_denied(users)
        assert denied
        look(store)
        store.queues.size(QUEUE)
    assert caplog.messages == [each for each in caplog.messages if "in the layout 'hash' only" in each]
    assert (len(caplog.messages), times_denied(users)) == (1, denied)
    assert admin.zcard(KEYS.timeout(QUEUE)) == 1


@pytest.mark.parametrize("operation", LOOKS)
def test_rights_that_are_needed_are_asked_for(own_server: PrivateRedis, operation: str) -> None:
    """Who may not touch the keys of the own layout gets the error of Redis."""
    own_server.client().execute_command(
        *("ACL", "SETUSER", "poor", "on", ">password", "+@all", "~{delayq}:queues", "~redisson*")
    )
    store = DelayStore(redis.Redis(port=own_server.port, username="poor", password="password"), KEYS)
    with pytest.raises(NoPermissionError):
        LOOKS[operation][0](store)
    own_server.client().execute_command("ACL", "SETUSER", "poor", "~*")
    offer_as_redisson(redis.Redis(port=own_server.port), b"theirs", time.time() * 1000 + 60_000)
    assert {form.layout for form in store.delivery.heads([QUEUE]).due_ms} == {"redisson"}
    store.close()


def use(store: DelayStore, admin: redis.Redis) -> None:
    """Does all that an app does with messages in Redisson's layout, those of other clients among them."""
    with store.delivery.listen() as listener:
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
    admin.zremrangebyrank(KEYS.timeout(QUEUE), 2, -1)  # as Redisson would: what is known of ids stays
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
