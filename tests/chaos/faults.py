"""Which faults come when, drawn from a seed, and how each is done."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from tests.chaos.brokers.single import SingleRedis
from tests.chaos.fleet.members import Fleet, Member

#: The longest short stop, in s.
SHORT_STOP_S = 1.5


@dataclass(frozen=True)
class Draw:
    """A fault that was drawn.

    Attributes:
        after_s: Pause after the fault before it, in s.
        kind: One of the weights' names.
        lot: A number from 0 to 1 that chooses the victim.
        strength: A number from 0 to 1 that says how long it lasts, or how many it befalls.
    """

    after_s: float
    kind: str
    lot: float
    strength: float


def drawn(seed: int, every_s: float, weights: dict[str, int]) -> Iterator[Draw]:
    """Yields faults without end. The same seed gives the same faults.

    Args:
        seed: The seed.
        every_s: Mean pause between two faults, in s.
        weights: How often each kind comes.
    """
    chance = random.Random(seed)
    while True:
        kind = chance.choices(list(weights), list(weights.values()))[0]
        yield Draw(chance.expovariate(1 / every_s), kind, chance.random(), chance.random())


def in_turn(seed: int, pause_s: float, kinds: Sequence[str]) -> Iterator[Draw]:
    """Yields one fault of each kind, in an order, with victims and strengths by the seed."""
    chance = random.Random(seed)
    for kind in chance.sample(list(kinds), len(kinds)):
        yield Draw(pause_s, kind, chance.random(), chance.random())


class Chaos:
    """Does the faults of a run, each at its time.

    Args:
        fleet: The victims.
        broker: The Redis.
        lease_s: How long a consumer's lease is; some stops last longer.
        draws: The faults.

    Attributes:
        is_over: Whether no further fault comes.
    """

    def __init__(self, fleet: Fleet, broker: SingleRedis, lease_s: float, draws: Iterator[Draw]) -> None:
        self._fleet = fleet
        self._broker = broker
        self._lease_s = lease_s
        self._draws = draws
        self._order = count()
        self._agenda: list[tuple[float, int, Callable[[], object]]] = []
        self.is_over = False
        self._draw_next(time.monotonic())

    def step(self) -> None:
        """Does what is due."""
        while self._agenda and self._agenda[0][0] <= time.monotonic():
            heappop(self._agenda)[2]()

    def end(self) -> None:
        """Lets all that was stopped go on. No further fault comes."""
        self._agenda.clear()
        for member in self._fleet.members:
            member.go_on()

    def _draw_next(self, now: float) -> None:
        draw = next(self._draws, None)
        if draw is None:
            self.is_over = True
        else:
            self._at(now + draw.after_s, lambda: self._do_and_draw(draw))

    def _do_and_draw(self, draw: Draw) -> None:
        self._do(draw)
        self._draw_next(time.monotonic())

    def _at(self, when: float, what: Callable[[], object]) -> None:
        heappush(self._agenda, (when, next(self._order), what))

    def _do(self, draw: Draw) -> None:
        act = self._broker.acts(draw.strength, random.Random(draw.lot)).get(draw.kind)
        if act is not None:
            act()
        elif (member := self._victim(draw)) is not None:
            self._befall(member, draw)

    def _victim(self, draw: Draw) -> Member | None:
        """Returns the member that the lot chooses among those that can have this fault now."""
        role = {"kill transfer": ["transfer"], "kill publisher": ["publisher"]}.get(draw.kind, ["worker"])
        if draw.kind.startswith("stop"):
            role = ["worker", "transfer"]
        able = [member for member in self._fleet.running() if member.post.role in role]
        if draw.kind == "kill child":
            able = [member for member in able if member.post.pool == "prefork"]
        return able[int(draw.lot * len(able))] if able else None

    def _befall(self, member: Member, draw: Draw) -> None:
        if draw.kind == "kill child":
            member.kill_child(random.Random(draw.lot))
        elif draw.kind.startswith("kill"):
            member.kill()
        elif draw.kind == "term":
            member.terminate()
        else:
            shortly = draw.kind == "stop shortly"
            for_s = SHORT_STOP_S * draw.strength if shortly else self._lease_s * (1.3 + draw.strength)
            member.stop()
            self._at(time.monotonic() + for_s, member.go_on)
