"""Runs the steps of several actors against a real Redis in every order, and checks the database after each step.

The search is depth first. A state is what Redis has and what the actors know. One that was seen before is not entered
again: its times count by how far away they are, in steps of ``GRAIN_MS``. Redis is put back to a state by ``RESTORE``.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import redis

#: Times in a world are multiples of this, in ms, give or take what the search takes.
GRAIN_MS = 3_600_000
#: A number that is a time, in s, ms or µs since the epoch.
_TIME = re.compile(rb"1[6-9]\d{8}(?:\d{6}|\d{3})?(?:\.\d+)?")
#: Returns all that Redis has in one step: the clock, then for each key its name, type, value, dump and time to live.
_READ = """
local found = {redis.call('TIME')}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind, value = redis.call('TYPE', key).ok, nil
  if kind == 'string' then value = {redis.call('GET', key)}
  elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'hash' then value = redis.call('HGETALL', key)
  elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  else
    value = redis.call('SMEMBERS', key)
    table.sort(value)
  end
  found[#found + 1] = {key, kind, value, redis.call('DUMP', key), redis.call('PTTL', key)}
end
return found
"""

S = TypeVar("S")
#: A step: what it is called, and what it does. It returns what the actors know afterwards.
Step = tuple[str, Callable[[], S]]


class Violation(AssertionError):
    """What a step has left behind cannot be."""


class Database(NamedTuple):
    """What Redis has.

    Attributes:
        now_ms: Redis's clock, ms since the epoch.
        values: By key: a list's items, or the members with their scores or values. Sets and strings are lists, too.
        dumps: By key: what ``RESTORE`` takes, and the time to live in ms.
        beside: What there is beside Redis, as the world tells it.
    """

    now_ms: float
    values: Mapping[bytes, Any]
    dumps: Mapping[bytes, tuple[bytes, int]]
    beside: Any = None


class World(Protocol[S]):
    """The actors of a search.

    Attributes:
        ignored: Keys with one of these texts in their names do not tell states apart, such as counters.
    """

    ignored: tuple[bytes, ...]

    def begin(self) -> S:
        """Makes the first state, on an empty database."""

    def beside(self) -> Any:
        """Returns what there is beside Redis, such as the rows of tables; its ``repr`` tells states apart."""

    def put_back(self, beside: Any) -> None:
        """Puts back what there was beside Redis."""

    def told(self, database: Database) -> Mapping[bytes, Any]:
        """Returns what Redis has as far as it tells states apart."""

    def steps(self, state: S) -> Iterable[Step[S]]:
        """Returns what the actors can do in a state."""

    def check(self, state: S, database: Database) -> None:
        """Raises a Violation if what Redis has does not fit what the actors know."""

    def end(self, state: S) -> None:
        """Lets all work that is left be done where no step is left, and checks what remains. Redis is put back."""


class Explored(NamedTuple):
    """What a search has come to.

    Attributes:
        states: Number of different states.
        steps: Number of steps that were run.
        ends: Number of states without a further step.
        is_whole: Whether there was time for all orders.
    """

    states: int
    steps: int
    ends: int
    is_whole: bool


class Explorer(Generic[S]):
    """Searches a world.

    Args:
        world: The actors.
        client: A client of the database; it must not decode. All keys are deleted.
    """

    def __init__(self, world: World[S], client: redis.Redis) -> None:
        self._world, self._client = world, client
        self._read = client.register_script(_READ)
        self._seen: set[int] = set()

    def explore(self, seconds: float) -> Explored:
        """Tries all orders of steps, for some time at the most.

        Raises:
            Violation: With the steps that lead to it, as the body of a test.
        """
        until = monotonic() + seconds
        self._client.flushall()
        state, steps, ends = self._world.begin(), 0, 0
        database = self.database()
        self._note(state, database)
        path = [_Frame("", database, iter(self._world.steps(state)))]
        while path:
            frame = path[-1]
            step = next(frame.steps, None)
            if step is None:
                path.pop()
                continue
            if monotonic() > until:
                return Explored(len(self._seen), steps, ends, is_whole=False)
            self._put_back(frame.database)
            steps += 1
            taken = [*(one.name for one in path[1:]), step[0]]
            state, database = self._take(step, taken)
            if self._note(state, database):
                further = list(self._world.steps(state))
                if further:
                    path.append(_Frame(step[0], database, iter(further)))
                else:
                    ends += 1
                    self._ended(state, taken)
        return Explored(len(self._seen), steps, ends, is_whole=True)

    def database(self) -> Database:
        """Reads what Redis has."""
        (seconds, micros), *rows = self._read()
        values = {key: _paired(value) if kind in (b"hash", b"zset") else value for key, kind, value, _, _ in rows}
        dumps = {key: (dump, ttl) for key, _, _, dump, ttl in rows}
        return Database(int(seconds) * 1000 + int(micros) / 1000, values, dumps, self._world.beside())

    def _take(self, step: Step[S], taken: list[str]) -> tuple[S, Database]:
        try:
            state = step[1]()
            database = self.database()
            self._world.check(state, database)
        except Exception as error:
            raise _violation(error, taken) from error
        return state, database

    def _ended(self, state: S, taken: list[str]) -> None:
        try:
            self._world.end(state)
        except Exception as error:
            raise _violation(error, [*taken, "the end"]) from error

    def _put_back(self, database: Database) -> None:
        with self._client.pipeline(transaction=False) as pipe:
            pipe.flushdb()
            for key, (dump, ttl) in database.dumps.items():
                pipe.restore(key, max(ttl, 0), dump)
            pipe.execute()
        self._world.put_back(database.beside)

    def _note(self, state: S, database: Database) -> bool:
        """Notes a state. Returns whether it is new."""

        def relative(match: re.Match[bytes]) -> bytes:
            time = float(match[0])
            ms = time / 1000 if time > 1e14 else time if time > 1e11 else time * 1000
            return b"%d" % round((ms - database.now_ms) / GRAIN_MS)

        told = [
            (key, _TIME.sub(relative, repr(value).encode()))
            for key, value in sorted(self._world.told(database).items())
            if not any(part in key for part in self._world.ignored)
        ]
        beside = _TIME.sub(relative, repr(database.beside).encode())
        digest = hash((state, tuple(told), beside))
        before = len(self._seen)
        self._seen.add(digest)
        return len(self._seen) > before


def search(world: World[S], client: redis.Redis, name: str, seconds: float) -> None:
    """Searches a world, for some time at the most, prints what it came to, and sees that it came to an end of the work.

    Raises:
        Violation: As ``Explorer.explore``.
    """
    found = Explorer(world, client).explore(seconds)
    print(f"{name}: {found}")
    assert found.ends


class _Frame(NamedTuple):
    """A state on the way, and the steps from there that are still to be taken."""

    name: str
    database: Database
    steps: Iterator[Any]


def _paired(flat: list[Any]) -> dict[bytes, bytes]:
    """Returns the members of a hash or a ZSET, sorted, since a hash keeps no order."""
    return dict(sorted(zip(flat[::2], flat[1::2], strict=True)))


def _violation(error: Exception, taken: list[str]) -> Violation:
    listed = "\n".join(f"    {step}" for step in taken)
    return Violation(f"{type(error).__name__}: {error}\nafter the steps\n{listed}")
