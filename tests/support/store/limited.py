"""Messages with keys of limits, and a look at the sub-queues of the queue ``q``."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from celery_ext.limits import LIMIT_HEADER, Limit, LimitStore
from celery_ext.limits.keys import LimitKeys
from kombu_delayq.store import PARKED, DelayStore
from kombu_delayq.store.types import Fetched, Request
from kombu_delayq.text import as_bytes, as_text
from tests.support.store.consuming import ME

#: What is in ``Keys.parked`` for a message: its key, its step, a number, and the message.
_MEMBER = re.compile(rb"([^\0]*)\0(\d)(\d{16})(.*)", re.DOTALL)


class Sorted(NamedTuple):
    """What is noted of the sub-queues of a queue, and what there is.

    Attributes:
        keys: By key: how many messages wait, how many places it has, and its bound of these.
        waiting: By key, its messages, the next one first.
        places: By delivery tag, the key.
        turns: The keys of which a message may go, in the order of their turns.
        rests: The keys that rest.
        may_go: How many messages may go now, as it is noted.
    """

    keys: Mapping[str, tuple[int, int, float]]
    waiting: Mapping[str, list[bytes]]
    places: Mapping[str, str]
    turns: list[str]
    rests: set[str]
    may_go: int

    @property
    def faults(self) -> list[str]:
        """What of all this does not agree."""
        found = [key for key in self.turns if key not in self.keys]
        running = Counter(self.places.values())
        may_go = {key: self._that_may(key) for key in self.keys}
        for key, (waits, runs, _) in self.keys.items():
            if waits != len(self.waiting.get(key, ())) or runs != running[key]:
                found.append(f"{key}: {waits} wait and {runs} run, of {self.waiting.get(key)} and {running}")
            if (key in self.turns) != bool(may_go[key]):
                found.append(f"{key}: {may_go[key]} may go, and the turns are {self.turns}")
        found += [f"{key} is not known" for key in {*self.waiting, *running} - self.keys.keys()]
        if self.may_go != sum(may_go.values()):
            found.append(f"{self.may_go} are noted of {may_go}")
        return found

    def _that_may(self, key: str) -> int:
        waits, runs, bound = self.keys[key]
        return 0 if key in self.rests else max(0, min(waits, int(min(bound - runs, waits))))


def keyed(key: str, number: object = 1, **properties: Any) -> str:
    """Makes a message of a key; without one, if that is empty."""
    headers = {LIMIT_HEADER: key} if key else {}
    return json.dumps({"body": str(number), "headers": headers, "properties": properties})


def push(store: DelayStore, *messages: str | bytes, step: int = 0) -> None:
    """Publishes messages to a list of the queue."""
    store.client.lpush(store.keys.ready("q", (0, 3, 6, 9))[step], *messages)


def declare(store: DelayStore, **limits: Mapping[str, Any]) -> list[str]:
    """Declares limits as a worker does."""
    return store.part(LimitStore).declare({name: Limit.of(given) for name, given in limits.items()}, ["q"])


def asked(store: DelayStore, most: int = 8, first: int = 1, name: str = ME, **how: Any) -> tuple[list[str], Any]:
    """Takes messages of the queue. Returns what their bodies say, and in how many s to ask again."""
    request = Request(name, first, most, ["q"], **how)
    reply = store.client.execute_command(*store.fetching.fetch_command(request, by_text=True))
    return bodies(store.fetching.fetched(request, reply)), store.fetching.again_s(reply)


def sort_all(store: DelayStore) -> None:
    """Asks for nothing, so often that all messages of the queue's first list are in sub-queues."""
    while store.client.llen("q"):
        asked(store, 0)


def bodies(found: list[Fetched]) -> list[str]:
    """Returns what the bodies of messages say."""
    return [json.loads(each.body)["body"] for each in found]


def sorted_of(values: Mapping[bytes, Any], store: DelayStore) -> Sorted:
    """Returns what there is of limits in a database.

    Args:
        values: By key: the members of a hash or ZSET with their values or scores, sorted.
        store: The store.
    """
    keys, own = store.keys, LimitKeys(store.keys)

    def of(key: str) -> Mapping[bytes, Any]:
        found: Mapping[bytes, Any] = values.get(as_bytes(key), {})
        return found

    noted = {as_text(name): as_text(text).split() for name, text in of(keys.parked_keys("q")).items()}
    meta = noted.pop(as_text(PARKED), ["0"] * 4)
    waiting: dict[str, list[bytes]] = {}
    for member in sorted(of(keys.parked("q"))):
        found = _MEMBER.fullmatch(member)
        assert found is not None, member
        waiting.setdefault(as_text(found[1]), []).append(found[4])
    turns = of(own.turns("q"))
    return Sorted(
        {key: (int(waits), int(runs), float(bound)) for key, (waits, runs, bound, *_) in noted.items()},
        waiting,
        {as_text(tag): as_text(place).partition("\0")[2][1:] for tag, place in of(keys.places("q")).items()},
        [as_text(key) for key in sorted(turns, key=lambda key: (float(turns[key]), key))],
        {as_text(key) for key in of(own.rests("q"))},
        int(float(meta[2])),
    )


def look(store: DelayStore) -> Sorted:
    """Returns what there is of limits. What does not agree fails the test."""
    keys, own, client = store.keys, LimitKeys(store.keys), store.client
    values: dict[bytes, Any] = {}
    for key in (keys.parked("q"), own.turns("q"), own.rests("q")):
        values[as_bytes(key)] = dict(client.zrange(key, 0, -1, withscores=True))
    for key in (keys.places("q"), keys.parked_keys("q")):
        values[as_bytes(key)] = client.hgetall(key)
    found = sorted_of(values, store)
    assert not found.faults, f"{found.faults} of {found}"
    return found


def numbers(store: DelayStore) -> dict[str, tuple[int, int]]:
    """Returns how many messages of each key wait, and how many places it has, as ``LimitStore.keys`` says."""
    found = {each.key: (each.waiting, each.running) for each in store.part(LimitStore).keys("q")}
    assert found == {key: (waits, runs) for key, (waits, runs, _) in look(store).keys.items()}
    return found
