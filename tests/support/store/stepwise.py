"""Runs code of this project call by call, so that the explorer lets others come between two of its calls.

The code runs from its beginning each time, and hears again what it has heard of its calls, until it makes the next one.
So it has to do the same when it hears the same.
"""

import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import redis

from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore

#: What differs from time to time: a time, and of a ``TIME`` its microseconds, too; within a world no hour passes.
_TIME = re.compile(r"\b1[6-9]\d{8}(?:\d{3})?(?:\.\d+)?\b(?:', b'\d{1,6}\b)?")


class Paused(BaseException):
    """The code is about to make a call that is not its turn."""


class Heard:
    """What a call has returned. Two are equal if they differ in times alone."""

    def __init__(self, value: Any) -> None:
        self._pickled = pickle.dumps(value)
        self._told = _TIME.sub("time", repr(value))

    @property
    def value(self) -> Any:
        """What was returned."""
        return pickle.loads(self._pickled)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Heard) and other._told == self._told

    def __hash__(self) -> int:
        return hash(self._told)


class Work(NamedTuple):
    """Code that is under way.

    Attributes:
        words: What it is, and its arguments.
        heard: What its calls have returned so far.
        result: What it has returned; None before.
        lives: Whether it goes on.
    """

    words: tuple[str, ...]
    heard: tuple[Heard, ...] = ()
    result: Any = None
    lives: bool = True


class Turn:
    """One turn of some code: it makes one further call.

    Args:
        heard: What its calls have returned so far.
    """

    #: Whose turn it is; None for code that makes its calls as it likes.
    now: "Turn | None" = None

    def __init__(self, heard: tuple[Heard, ...]) -> None:
        self._before = [one.value for one in heard]
        self._at = 0
        self._made: list[Any] = []

    def run(self, act: Callable[[], Any]) -> tuple[Any, list[Heard], bool]:
        """Runs the code. Returns its result, what it has heard by then, and whether it is done."""
        Turn.now = self
        try:
            result, is_done = act(), True
        except Paused:
            result, is_done = None, False
        finally:
            Turn.now = None
        return result, [*map(Heard, self._made)], is_done

    def take(self, act: Callable[[], Any]) -> Any:
        """Makes a call, if it was not made before.

        Raises:
            Paused: Another call was made in this turn.
        """
        self._at += 1
        if self._at <= len(self._before):
            return self._before[self._at - 1]
        if self._at > len(self._before) + 1:
            raise Paused
        Turn.now = None  # what the call itself calls is part of it
        try:
            self._made = [act()]
        finally:
            Turn.now = self
        return self._made[0]


class Stepwise(redis.Connection):
    """A connection whose calls wait for their turns: what is sent at once is one call."""

    _replies: Iterator[Any] | None = None  # of the call that was made before
    _heard: list[Any] | None = None  # of the call that is made now

    def send_packed_command(self, command: Any, check_health: bool = True) -> Any:
        """Sends commands, when it is their turn, unless their replies are known."""
        if Turn.now is None:
            return super().send_packed_command(command, check_health)
        self._heard = None

        def send() -> list[Any]:
            self._heard = []
            super(Stepwise, self).send_packed_command(command, check_health)
            return self._heard

        self._replies = iter(Turn.now.take(send))
        return None

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Returns the next reply."""
        if Turn.now is None or (self._heard is None and self._replies is None):
            return super().read_response(*args, **options)
        if self._heard is None:
            assert self._replies is not None
            reply = next(self._replies)
        else:
            try:
                reply = super().read_response(*args, **options)
            except redis.ResponseError as error:
                reply = error
            self._heard.append(reply)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def disconnect(self, *args: Any) -> None:
        """Closes the connection, but not because it is not its turn: nothing is sent then."""
        if Turn.now is None:
            super().disconnect(*args)


def by_turns(owner: type) -> type:
    """Returns a subclass whose methods and properties wait for their turns. The explorer takes each use as one call."""

    def method(real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            return real(*args, **options) if Turn.now is None else Turn.now.take(lambda: real(*args, **options))

        return called

    members = {name: inspect.getattr_static(owner, name) for name in dir(owner) if not name.startswith("_")}
    turned = {
        name: property(method(one.fget)) if isinstance(one, property) else method(one) for name, one in members.items()
    }
    return type(owner.__name__, (owner,), turned)


class Processes:
    """Makes stores, each as of another process, whose calls wait for their turns.

    Args:
        store: Of the server and the names of keys that all use.
    """

    def __init__(self, store: DelayStore) -> None:
        port = store.client.connection_pool.connection_kwargs["port"]
        self.keys, self._options = store.keys, Options(layout=store.layout)
        self.client = redis.Redis(connection_pool=redis.ConnectionPool(connection_class=Stepwise, port=port))
        self.client.ping()

    def store(self) -> Any:
        """Makes a store."""
        return DelayStore(self.client, self.keys, options=self._options)

    def go_on(self, work: Work, act: Callable[[Any], Any]) -> Work:
        """Lets some work make one call more."""
        store = self.store()
        result, heard, is_done = Turn(work.heard).run(lambda: act(store))
        return work._replace(heard=(*work.heard, *heard), result=result, lives=not is_done)
