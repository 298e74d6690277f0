"""Lists, sets, pauses and resets limits and keys, for the shell and ``delayq serve``, with a line in the audit."""

from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from celery_ext.limits.key import read_key
from celery_ext.limits.limit import Limit
from celery_ext.limits.store import KeyState, Limits, LimitStore
from kombu_delayq.audit import audited
from kombu_delayq.errors import did_you_mean

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore

#: What became of a limit or a key.
Outcome = Literal["set", "paused", "reset", "unchanged"]


class UnknownLimit(ValueError):
    """No worker declares a limit of this name, and nobody has set it."""


class NamedLimit(NamedTuple):
    """A limit, or a key for which people have set one of its own.

    Attributes:
        name: Its name.
        declared: What the worker that started last declares; None for a key, and for a limit that none declares.
        set: What people have set in its place; None if they have not.
        holds: What holds; None where nothing is said.
    """

    name: str
    declared: Limit | None
    set: Limit | None
    holds: Limit | None

    def as_json(self) -> dict[str, Any]:
        """Returns it as JSON shows it."""
        limits = {"declared": self.declared, "set": self.set, "holds": self.holds}
        return {"name": self.name} | {what: limit and limit._asdict() for what, limit in limits.items()}


class KeyRow(NamedTuple):
    """A key of a queue, and its limit.

    Attributes:
        queue: Name of the queue.
        state: What is known of the key.
        limit: What holds for it; None if nobody declares its limit.
        is_set: Whether people have set a limit for this key alone.
    """

    queue: str
    state: KeyState
    limit: Limit | None
    is_set: bool

    @property
    def words(self) -> str:
        """Its limit for people."""
        if not self.state.key:
            return "no key"
        return "nobody declares it" if self.limit is None else self.limit.words

    def as_json(self) -> dict[str, Any]:
        """Returns it as JSON shows it."""
        limit = self.limit and self.limit._asdict()
        return {"queue": self.queue, **self.state._asdict(), "limit": limit, "is_set": self.is_set}


def list_limits(store: "DelayStore") -> list[NamedLimit]:
    """Returns the limits, and the keys with one of their own, by name; one round trip."""
    limits = store.part(LimitStore).limits()
    names = sorted({*limits.declared, *limits.set})
    return [NamedLimit(name, limits.declared.get(name), limits.set.get(name), limits.of(name)) for name in names]


def rows_of(limits: Limits, queue: str, states: Iterable[KeyState]) -> list[KeyRow]:
    """Returns keys of a queue with their limits."""
    return [KeyRow(queue, state, limits.of(state.key), state.key in limits.set) for state in states]


class Longest(NamedTuple):
    """The keys of some queues that have most messages.

    Attributes:
        rows: The keys, the longest first.
        of: How many keys were looked at.
        more: Whether a queue has keys that were not looked at.
    """

    rows: list[KeyRow]
    of: int
    more: bool


def longest_keys(
    store: "DelayStore", queues: Sequence[str], *, limit: str = "", most: int | None = None, looked: int | None = None
) -> Longest:
    """Returns the keys of queues that have most messages.

    Args:
        store: The broker's store.
        queues: Names of the queues.
        limit: Only keys of this limit, or this key; empty for all.
        most: Most keys to return; None for all.
        looked: How many keys of a queue to look at, at most; None for all.
    """
    part = store.part(LimitStore)
    found, of, more = list[KeyRow](), 0, False
    for queue in queues:
        states = iter(part.states(queue, [limit]) if ":" in limit else part.keys(queue))
        seen = {one.key: one for one in islice(states, looked)}
        more = more or (looked is not None and next(states, None) is not None)
        of += len(seen)
        held = [one for one in seen.values() if _is_wanted(one, limit)]
        found += rows_of(part.limits(queue), queue, nlargest(most or len(held), held, key=_length))
    return Longest(nlargest(most or len(found), found, key=lambda row: _length(row.state)), of, more)


def _is_wanted(state: KeyState, limit: str) -> bool:
    is_there = state.waiting or state.running or state.rests_s
    return bool(is_there) and (not limit or limit in (state.key, state.key.partition(":")[0]))


def set_limit(store: "DelayStore", name: str, limit: Limit, who: str | None = None) -> tuple[str, Outcome]:
    """Sets a limit, or that of one key, in all queues, in place of what was set before. Until a reset.

    Args:
        store: The broker's store.
        name: The name of a limit, or a key.
        limit: What holds. A field that is None stays as it is declared.
        who: Who does it; by default the user of this process.

    Returns:
        The name as it is kept, and what became of it.

    Raises:
        InvalidLimit: It is neither a name of a limit nor a key.
        UnknownLimit: There is no such limit.
    """
    return _change(store, name, limit, "set", who)


def pause(store: "DelayStore", name: str, who: str | None = None) -> tuple[str, Outcome]:
    """Lets no more task of a key, or of all keys of a limit, begin until a reset. As ``set_limit`` else."""
    return _change(store, name, Limit(running=0), "paused", who)


def reset(store: "DelayStore", name: str, who: str | None = None) -> tuple[str, Outcome]:
    """Lets what workers declare hold again, for a limit or for a key. As ``set_limit`` else."""
    return _change(store, name, None, "reset", who)


#: How the audit names a change, by what becomes of the limit.
_ACTIONS: dict[Outcome, str] = {"set": "set_limit", "paused": "pause_limit", "reset": "reset_limit"}


def _change(
    store: "DelayStore", given: str, limit: Limit | None, word: Outcome, who: str | None
) -> tuple[str, Outcome]:
    name, part = read_key(given), store.part(LimitStore)
    limits = part.limits()
    check_known(limits, name)
    before = limits.set.get(name)
    if limit is not None and word == "paused":
        limit = limit.over(before)
    what = {"limit": name} | ({} if limit is None or word == "paused" else {"to": limit.words})
    with audited(_ACTIONS[word], what, who=who, unchanged=("unchanged",)) as counts:
        outcome: Outcome = word if limit != before else "unchanged"
        if outcome != "unchanged":
            part.override(name, limit, sorted(part.queues()))
        counts[outcome] += 1
    return name, outcome


def check_known(limits: Limits, name: str) -> None:
    """Raises ``UnknownLimit`` for the name of a limit, or a key of one, that nobody declares and nobody has set."""
    of = name.partition(":")[0]
    known = {*limits.declared, *(each.partition(":")[0] for each in limits.set)}
    if of in known and name:
        return
    if not known:
        raise UnknownLimit(
            "no limit is declared: set the transport option limits of the workers, such as "
            "{'account': {'running': 2}}, and restart them"
        )
    hint = did_you_mean(of, [each for each in known if each == each.lower()])
    raise UnknownLimit(f"no limit is called {of!r}{hint}: there {'is' if len(known) == 1 else 'are'} {_named(known)}")


def _named(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10:,} more" if len(shown) > 10 else "")


def _length(state: KeyState) -> tuple[float, ...]:
    return state.waiting, state.running, state.rests_s or -inf
