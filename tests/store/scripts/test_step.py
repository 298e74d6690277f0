"""``step.lua``: stores the next step of a delay chain, unless the chain was cancelled or a step of it waits."""

from concurrent.futures import ThreadPoolExecutor
from math import inf

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.conditions import until
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import (
    BODIES,
    DUE,
    DUPLICATES,
    FUTURE_MS,
    ODD_IDS,
    ORDER,
    PAST_MS,
    Ear,
    announced,
    clock_ms,
    contents,
    in_form,
    kept_ms,
    look,
    odd,
    only,
    popped,
    refuses_a_key_of_the_wrong_type,
    waiting,
)

CANCELLED, CHAINS = "{delayq}:cancelled", "{delayq}:chains"
CHAIN = "[chain 1]"


def step(identity: str = "i", due_ms: float = FUTURE_MS, number: int = 1, chain: str = CHAIN) -> Offer:
    return waiting(identity, due_ms, f"step {number} of {chain}")


def test_a_step_is_stored_as_any_message(store: DelayStore, ear: Ear) -> None:
    """On an empty database a step makes what an offer makes, says which place it got, and a new head is announced."""
    assert store.chains.step("q", CHAIN, step("i")) == "first"
    assert store.chains.step("q", CHAIN, step("later", FUTURE_MS + 1)) == "behind"
    assert store.chains.step("q", CHAIN, Offer("head", repr(FUTURE_MS - 1), 3, CHAIN)) == "head"
    assert ear.heard() == [announced(store, FUTURE_MS), announced(store, FUTURE_MS - 1)]
    assert look(store) == {
        b"waiting in q": [
            ("head", FUTURE_MS - 1, 3, CHAIN.encode()),
            ("i", FUTURE_MS, 0, b"step 1 of [chain 1]"),
            ("later", FUTURE_MS + 1, 0, b"step 1 of [chain 1]"),
        ],
        b"{delayq}:queues": {b"q"},
        # When the latest step of each chain is due; and that chains are in use.
        b"{delayq}:chains": [(b"head", FUTURE_MS - 1), (b"i", FUTURE_MS), (b"later", FUTURE_MS + 1), (b"", inf)],
    }


@pytest.mark.parametrize("number", [1, 2])
def test_one_step_of_a_chain_waits_at_most(store: DelayStore, ear: Ear, number: int) -> None:
    """While a step waits, neither the same nor another step of the chain is stored; when it has left, the next is."""
    store.chains.step("q", CHAIN, step())
    before = contents(store.client)
    ear.heard()
    assert store.chains.step("q", CHAIN, step(due_ms=PAST_MS, number=number)) == "waits"
    assert contents(store.client) == before
    assert ear.heard() == []
    store.lookup.cancel(["q"], ["i"])
    assert store.chains.step("q", CHAIN, step(number=2)) == "first"


def test_a_step_that_is_due_waits_until_it_is_transferred(store: DelayStore) -> None:
    """A step in the store counts as waiting also when it is overdue, and once transferred no more."""
    store.chains.step("q", CHAIN, step(due_ms=PAST_MS))
    assert store.chains.step("q", CHAIN, step(number=2)) == "waits"
    store.delivery.transfer("q")
    assert store.chains.step("q", CHAIN, step(number=2)) == "first"
    assert popped(store.client, "q") == [b"step 1 of [chain 1]"]


def test_other_messages_of_the_id_do_not_count(store: DelayStore) -> None:
    """A message of the id that is no step of the chain is kept beside the step, and so is a step of another chain."""
    store.delivery.offer("q", waiting("i"))
    assert store.chains.step("q", CHAIN, step()) == "behind"
    assert store.chains.step("q", "[chain 2]", step(chain="[chain 2]")) == "behind"
    for chain in (CHAIN, "[chain 2]"):
        assert store.chains.step("q", chain, step(number=2, chain=chain)) == "waits"
    assert len(store.lookup.get(["q"], ["i"])["i"]) == 3


def test_the_text_of_a_chain_is_no_pattern(store: DelayStore) -> None:
    """What names a chain is looked for as it is written."""
    store.delivery.offer("q", waiting("i", body="a step of chain x"))
    assert store.chains.step("q", "chain .", step(chain="chain .")) == "behind"
    assert store.chains.step("q", "%a+", step(chain="%a+")) == "behind"


def test_a_cancelled_chain_takes_no_step(store: DelayStore, ear: Ear) -> None:
    """After its id was refused a step is not stored, in whichever queue, until that is taken back."""
    store.chains.cancel_chains(["i"])
    before = contents(store.client)
    for queue in ("q", "other"):
        assert store.chains.step(queue, CHAIN, step()) == "cancelled"
    after = contents(store.client)
    after.pop(b"{delayq}:queues", None)  # a name costs little; a message in a queue that nobody knows would be lost
    assert after == before
    assert ear.heard() == []
    assert store.chains.step("q", CHAIN, step("j")) == "first"
    store.chains.accept(["i"])
    assert store.chains.step("q", CHAIN, step()) == "behind"


def test_a_refusal_ends_after_its_time(make_store: MakeStore) -> None:
    """A cancelled chain takes steps again when the time that the option names is over, and not before."""
    store = make_store(cancelled_ttl=1)
    store.chains.cancel_chains(["i"])
    end_ms = store.client.zscore(CANCELLED, "i")
    store.client.persist(CANCELLED)  # its time counts, not that of the key
    words = []

    def stored() -> bool:
        words.append(store.chains.step("q", CHAIN, step()))
        return words[-1] == "first"

    until(stored)
    assert clock_ms(store.client) >= end_ms
    assert words[0] == "cancelled"
    assert set(words[:-1]) == {"cancelled"}


def test_of_the_chains_that_may_run_a_bounded_number_is_known(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All chains that wait are known, and of those whose step has left the latest ones, for a time; others go."""
    store = make_store(cancelled_ttl=1000)
    monkeypatch.setattr("kombu_delayq.store.chains.KNOWN_CHAINS", 3)
    now_ms = clock_ms(store.client)
    for n in range(4):
        store.chains.step("q", CHAIN, step(f"waits {n}"))
        store.chains.step("q", CHAIN, step(f"ended {n}", now_ms - 2_000_000 + n))
    for n in range(9):
        store.chains.step("q", CHAIN, step(f"runs {n}", now_ms - 900_000 + n))
    known = [each.decode() for each in store.client.zrange(CHAINS, 0, -1)]
    assert known == [*(f"runs {n}" for n in (6, 7, 8)), *(f"waits {n}" for n in range(4)), ""]


def test_a_chain_that_was_refused_is_known_no_more(store: DelayStore) -> None:
    """When a step is refused the chain has ended, and is forgotten; others are not."""
    for each in ("i", "j"):
        store.chains.step("q", CHAIN, step(each))
    store.chains.cancel_chains(["i"])
    assert store.chains.step("q", CHAIN, step("i", number=2)) == "cancelled"
    assert store.client.zrange(CHAINS, 0, -1) == [b"j", b""]


def test_any_id(store: DelayStore) -> None:
    """A chain of any id takes a step, waits with it, and is refused, alone."""
    for identity in ODD_IDS:
        store.client.flushall()
        store.chains.cancel_chains([identity + "x", "other"])
        offer = odd(identity, CHAIN)
        assert store.chains.step("q", CHAIN, offer) == "first"
        assert store.chains.step("q", CHAIN, offer) == "waits"
        store.chains.cancel_chains([identity])
        assert store.chains.step("q", CHAIN, offer) == "cancelled"


@pytest.mark.parametrize("expire_ms", [0, 60_000])
def test_an_expiring_queue_takes_its_steps_with_it(store: DelayStore, expire_ms: int) -> None:
    """With ``x-expires`` all of the queue's keys end together, and the refusals do not; without it none does."""
    store.delivery.offer("q", waiting("i", priority=3))
    store.chains.cancel_chains(["k"])
    store.chains.step("q", CHAIN, step(), expire_ms)
    for key in (DUE, BODIES, ORDER, DUPLICATES):
        left_ms = store.client.pttl(in_form(store, key))
        assert left_ms > expire_ms if expire_ms else left_ms == -1
    assert store.client.pttl(CANCELLED) > 60_000


def test_a_relative_due_time_counts_from_redis_clock(store: DelayStore) -> None:
    """The delay of a step counts from the moment at which it reaches Redis."""
    before_ms = clock_ms(store.client)
    store.chains.step("q", CHAIN, Offer("i", "+60000.5", 0, CHAIN))
    due_ms = only(store, "i").due_ms
    assert kept_ms(store, before_ms + 60_000.5) <= due_ms <= kept_ms(store, clock_ms(store.client) + 60_000.5)


def test_of_many_at_once_one_step_is_stored(redis_server: PrivateRedis, store: DelayStore) -> None:
    """Of eight processes that offer a step of one chain in the same moment one gets it in."""

    def offer(number: int) -> list[str]:
        own = DelayStore(redis.Redis(port=redis_server.port), store.keys, options=store.options)
        words = [own.chains.step("q", CHAIN, step(str(n), number=number)) for n in range(50)]
        own.close()
        return words

    with ThreadPoolExecutor(8) as pool:
        words = list(pool.map(offer, range(8)))
    assert store.queues.size("q") == 50
    for of_a_chain in zip(*words, strict=True):
        assert sorted(of_a_chain)[1:] == ["waits"] * 7


@pytest.mark.parametrize("key", [DUE, BODIES, ORDER, DUPLICATES, CANCELLED, CHAINS])
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, ear: Ear, key: str) -> None:
    """Where somebody else's key is in the way, the error names it and nothing is stored."""
    store.delivery.offer("q", waiting("i", priority=3), waiting("i", body="two"))
    ear.heard()
    refuses_a_key_of_the_wrong_type(
        store, key, lambda: store.chains.step("q", CHAIN, step("j", PAST_MS)), stepped=[CHAINS]
    )
    assert ear.heard() == []


def test_a_later_step_takes_the_place_of_an_earlier_one(store: DelayStore) -> None:
    """When an old run was delivered twice and left its step behind, the chain goes on from the later one."""

    def at(retries: int) -> Offer:
        return waiting("i", FUTURE_MS + retries, f'{{"headers": {{"retries": {retries}}}, "chain": "{CHAIN}"}}')

    words = [store.chains.step("q", CHAIN, at(retries)) for retries in (1, 3, 2, 3)]
    assert words == ["first", "first", "waits", "waits"]
    assert [(message.due_ms, message.body) for message in store.lookup.get(["q"], ["i"])["i"]] == [
        (FUTURE_MS + 3, str(at(3).body).encode())
    ]
