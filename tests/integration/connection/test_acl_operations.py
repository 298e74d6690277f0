"""Each user of docs/reference/acl.md may run every operation that is part of its work, with all features on."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from celery_ext.dead_letters.letters import latest
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal.store import JournaledStore
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.store.test_store import ONLY, OPERATIONS
from tests.support.servers.acl import PAGE, denials
from tests.support.store.consuming import INDEX, UNACKED
from tests.support.store.keyspace import FUTURE_MS, PAST_MS
from tests.support.workers.held import KEYS

#: What publishers, workers, and the transfer workers and armers in them run.
_SHOP = """
    offer offer_once put adopt give_back fetch ack requeue heartbeat fence keep_alive count_minute stats scan
    split purge heads watch_heads lead release transfer transfer_limited bury forget_empty arm disarm get cancel
    reschedule run_now discard step check_chain undo_step cancel_chains
"""
_PUBLISHER = " offer put "
_TRANSFER = " heads watch_heads lead release transfer transfer_limited bury forget_empty requeue fence count_minute "
_STATUS = " stats due_counts heads held_page "
_OF_REPAIR = (
    " repair_index repair_bodies repair_list forget_idle convert replay index due_counts held_page claim end_claim "
)
#: What no operation of one script does: with a message in hand that came too early, a journal, and dead letters.
HELD: dict[str, Callable[[DelayStore], Any]] = {
    "adopt what is held": lambda store: store.delivery.adopt("q", _FAR, "tag"),
    "place far away": lambda store: store.delivery.offer("q", _FAR),
    "look for dead letters": lambda store: list(latest(store, ["q"])),
}
_FAR = Offer("far", repr(FUTURE_MS), 0, '{"headers": {}, "properties": {}}')
_JOURNAL = " elect journal_heartbeat promote claim_rows settle_rows "
_SPARK = " begin enqueue finish job_rate claim_ids close "
#: For each user, what it runs; and beside the user's own rights those that the page names for it.
ROLES = {
    "publisher": (_PUBLISHER, [], ()),
    "publisher that replaces": (f"{_PUBLISHER} offer_once", [], ("if_waiting",)),
    "publisher that cancels": (f"{_PUBLISHER} get cancel discard cancel_chains", [], ("if_waiting", "cancel")),
    "shop": (_SHOP + _JOURNAL, ["adopt what is held", "place far away"], ("journal", "conditions")),
    "transfer": (_TRANSFER + _JOURNAL, [], ("transfer_rate", "journal")),
    "status": (_STATUS, [], ("hgetall",)),
    "caretaker": (_SHOP + _OF_REPAIR + _JOURNAL, [*HELD], ("journal", "serve")),
    "spark": (_SPARK, [], ()),
}


def rights_beside() -> dict[str, list[str]]:
    """Returns the rights that the page adds for a feature."""
    text = PAGE.read_text(encoding="utf-8")
    found = {
        "transfer_rate": re.search(r"With `transfer_rate` it needs `(.*?)` as well", text),
        "journal": re.search(r"```text\n(.*?)```", text.partition("## A journal\n")[2], re.DOTALL),
        "conditions": re.search(r"`(\+hstrlen)` is for commands", text),
        "hgetall": re.search(r"`status` and metrics need `(.*?)` as well", text),
        "if_waiting": re.search(r"For `if_waiting` add `(.*?)`", text),
        "cancel": re.search(r"add these and\s`(.*?)`", text),
        "serve": re.search(r"needs more than `caretaker` has: `(.*?)`", text),
    }
    return {name: match[1].split() for name, match in found.items() if match is not None}


@pytest.fixture
def admin(users: PrivateRedis) -> Iterator[DelayStore]:
    """A store of an administrator."""
    store = DelayStore(redis.Redis(port=users.port), KEYS)
    yield store
    store.close()


def fill(store: DelayStore) -> None:
    """Lets messages wait, among them some that share a due time, an id or a priority, and some that are due."""
    store.client.flushdb()
    for due_ms in (PAST_MS, FUTURE_MS):
        rows = [(name, priority) for name in ("i", "k", "s", "b", "p", "once") for priority in (0, 9)]
        store.delivery.offer("q", *(Offer(name, repr(due_ms), at, f"{name} {at} {due_ms}") for name, at in rows))


@pytest.mark.both_layouts
@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_its_work(users: PrivateRedis, admin: DelayStore, tmp_path: Path, layout: str, role: str) -> None:
    """No command is denied, in any script or beside it; keys are another matter, and all are given here."""
    operations, others, features = ROLES[role]
    role = role.partition(" ")[0]
    beside = rights_beside()
    assert len(beside) == 7
    more = [right for name in features for right in beside[name] if right.startswith("+")]
    users.client().execute_command("ACL", "SETUSER", role, "~*", "&*", *more)
    client = redis.Redis(port=users.port, username=role, password="password")
    options, denied = Options(layout=layout), dict[str, list[str]]()
    if "journal" in features:
        options = replace(options, journal_url=f"sqlite:///{tmp_path}/journal.db")
        store: DelayStore = JournaledStore(client, KEYS, (0, 3, 6, 9), options)
    else:
        store = DelayStore(client, KEYS, options=options)
    for each in operations.split() + others:
        if ONLY.get(each, layout) != layout:
            continue
        fill(admin)
        admin.client.zadd(INDEX, {"tag": 1})
        admin.client.hset(UNACKED, "tag", "[]")
        users.client().execute_command("ACL", "LOG", "RESET")
        for _ in range(2):  # of several, the second finds what the first has made
            try:
                (HELD | OPERATIONS)[each](store)
            except redis.ResponseError:
                break
        if found := denials(users):
            denied[each] = [str(entry["object"]) for entry in found]
    store.close()
    assert denied == {}
