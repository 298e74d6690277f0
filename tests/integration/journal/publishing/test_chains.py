"""At most one step of a delay chain waits, in Redis or in the journal, and none after the chain was cancelled."""

import json
from time import time

import pytest

from celery_ext.journal import JournaledStore
from kombu_delayq.store.types import Offer
from tests.integration.journal.publishing.test_tiers import rows
from tests.support.journal.stores import DAY_MS, HOUR_MS, MakeJournaled, in_redis

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)

CHAIN = '"chain": "c1"'


def step(number: int, *, is_far: bool, copy: str = "") -> Offer:
    due_ms = time() * 1000 + (40 * DAY_MS if is_far else HOUR_MS)
    message = {"headers": {"retries": number}, "properties": {"chain": "c1"}, "body": copy}
    return Offer("i", repr(due_ms), 0, json.dumps(message))


def where(store: JournaledStore) -> list[tuple[str, int]]:
    """Returns where steps wait, and their numbers."""
    found = [("journal", row.body) for row in store.journal.get(["i"])]
    found += [("redis", one.body or b"") for one in store.redis_alone.lookup.get(["q"], ["i"]).get("i", [])]
    return [(tier, json.loads(body)["headers"]["retries"]) for tier, body in found]


@pytest.mark.parametrize("first", ["near", "far"])
@pytest.mark.parametrize("second", ["near", "far"])
def test_a_step_replaces_an_earlier_one_and_no_later_one(
    make_journaled: MakeJournaled, first: str, second: str
) -> None:
    """Of steps in whichever tier the latest one waits, and of copies of one step the first."""
    store = make_journaled()
    tier = {"near": "redis", "far": "journal"}
    assert store.chains.step("q", CHAIN, step(1, is_far=first == "far")) in ("first", "behind")
    assert where(store) == [(tier[first], 1)]
    assert store.chains.step("q", CHAIN, step(1, is_far=second == "far", copy="again")) == "waits"
    assert where(store) == [(tier[first], 1)]
    assert store.chains.step("q", CHAIN, step(2, is_far=second == "far")) in ("first", "behind")
    assert where(store) == [(tier[second], 2)]
    assert store.chains.step("q", CHAIN, step(1, is_far=first == "far", copy="late")) == "waits"
    assert where(store) == [(tier[second], 2)]


@pytest.mark.parametrize("first", ["near", "far"])
@pytest.mark.parametrize("second", ["near", "far"])
def test_a_step_that_was_replaced_leaves_no_row(make_journaled: MakeJournaled, first: str, second: str) -> None:
    """With rows of all messages, only the latest step has one: a restore after a loss brings no other."""
    store = make_journaled(journal="all")
    for number, tier in ((1, first), (2, second)):
        assert store.chains.step("q", CHAIN, step(number, is_far=tier == "far")) in ("first", "behind")
    assert [json.loads(row.body)["headers"]["retries"] for row in store.journal.get(["i"], None)] == [2]


def test_the_same_step_again_changes_nothing(make_journaled: MakeJournaled) -> None:
    """A publisher repeats a far step after a lost reply."""
    store = make_journaled()
    one = step(1, is_far=True)
    store.chains.step("q", CHAIN, one)
    assert store.chains.step("q", CHAIN, one) == "waits"
    assert where(store) == [("journal", 1)]


@pytest.mark.parametrize("is_far", [False, True])
def test_a_cancelled_chain_takes_no_step(make_journaled: MakeJournaled, is_far: bool) -> None:
    """A step that comes after the cancel leaves nothing, also nothing of a publisher that died half way."""
    store = make_journaled(journal="all")
    dead = step(1, is_far=True, copy="of a publisher that died before it asked")
    store.placement.place("q", [dead])
    store.chains.use_chains()
    store.chains.cancel_chains(["i"])
    assert store.chains.step("q", CHAIN, step(1, is_far=is_far)) == "cancelled"
    assert where(store) == []
    assert rows(store, "i") == []
    assert in_redis(store) == []


def test_of_two_copies_at_once_one_waits(make_journaled: MakeJournaled) -> None:
    """Both copies have written their row before either looks: the first stays, whoever asks first."""
    store = make_journaled()
    first, second = (step(1, is_far=True, copy=copy) for copy in ("first", "second"))
    store.placement.place("q", [first])
    assert store.chains.step("q", CHAIN, second) == "waits"
    assert [row.body for row in store.journal.get(["i"])] == [str(first.body).encode()]
