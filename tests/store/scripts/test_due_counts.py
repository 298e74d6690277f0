"""``due_counts.lua``: counts how many messages of a queue come due when."""

from itertools import pairwise
from math import inf
from random import Random

from kombu_delayq.store import DelayStore
from kombu_delayq.store.figures import BOUNDS_A_CALL
from kombu_delayq.store.layouts import LAYOUT_OF
from tests.support.store.keyspace import FUTURE_MS, contents, waiting


def test_messages_are_counted_from_each_bound_to_the_next(store: DelayStore) -> None:
    """A message at a bound counts in the bucket that begins there, and nothing is changed."""
    due = dict(zip("abcde", (0, 1, 1, 2, 5), strict=True))
    store.delivery.offer("q", *(waiting(identity, FUTURE_MS + after) for identity, after in due.items()))
    store.delivery.offer("other", waiting("i"))
    before = contents(store.client)
    bounds = [FUTURE_MS + at for at in range(6)]
    assert store.figures.due_counts(["q"], bounds) == {"q": [1, 2, 1, 0, 0]}
    assert store.figures.due_counts(["q"], [-inf, *bounds, inf]) == {"q": [0, 1, 2, 1, 0, 0, 1]}
    assert contents(store.client) == before


def test_more_bounds_than_one_call_goes_through(store: DelayStore) -> None:
    """Counts of many bounds, which go through several calls, are those of a count one by one; queues stay apart."""
    random, bounds = Random(7), [FUTURE_MS + at * 3 for at in range(2 * BOUNDS_A_CALL + 17)]
    dues = [FUTURE_MS + random.randrange(-50, 1500) for _ in range(300)]
    store.delivery.offer("q", *(waiting(str(number), due) for number, due in enumerate(dues)))
    store.delivery.offer("p", waiting("one", bounds[-2]))
    wanted = [sum(low <= due < high for due in dues) for low, high in pairwise(bounds)]
    assert sum(wanted) > 200
    one = [*[0] * (len(bounds) - 2), 1]
    assert store.figures.due_counts(["q", "p", "unknown"], bounds) == {"q": wanted, "p": one, "unknown": [0] * len(one)}


def test_fewer_than_two_bounds_have_nothing_between_them(store: DelayStore) -> None:
    """Without a bucket there is no number."""
    assert store.figures.due_counts(["q"], [FUTURE_MS]) == store.figures.due_counts(["q"], []) == {"q": []}
    assert store.figures.due_counts([], [FUTURE_MS, inf]) == {}


def test_a_queue_with_a_key_of_the_wrong_type_is_left_out(store: DelayStore) -> None:
    """Somebody else's key in the way of one queue does not keep others from being counted."""
    store.delivery.offer("q", waiting("i"))
    store.client.set(LAYOUT_OF[store.layout].keys(store.keys, "broken")[0], "somebody else's")
    assert store.figures.due_counts(["broken", "q"], [FUTURE_MS, inf]) == {"q": [1]}
