"""Values of kombu's option ``priority_steps``, and the lists in which kombu puts messages with them."""

from typing import Any

from kombu.transport.redis import Channel

from kombu_delayq.cluster import SlotKeys

ODD_STEPS: list[Any] = [
    (9, 6, 3, 0),
    (9, 0),
    (0, 0, 3, 3),
    (3, 0, 9, 6),
    [0, 9],
    range(3, 8),
    (0, 4.5),
    (-1, 20),
    (5, 1, 7),
]
#: Some of them: usual ones, those that are not ascending, and those that are no whole numbers.
SOME_STEPS: list[Any] = [(0, 3, 6, 9), (9, 6, 3, 0), (0, 4.5)]
STEPS = [(0, 3, 6, 9), (0,), (0, 9), tuple(range(10)), (3, 6), (9,), (0, 5), (1, 2, 3), *ODD_STEPS]


class Kombu(Channel):
    """Kombu's naming of lists in a cluster, without a connection."""

    def __init__(self, steps: Any, separator: str, prefix: str = "") -> None:
        self.priority_steps = steps
        self.sep = separator
        self._keys = SlotKeys(prefix)

    def _q_for_pri(self, queue: str, pri: int) -> str:
        return self._keys.prefix + self._keys.in_slot_of(queue, str(super()._q_for_pri(queue, pri)))

    def __del__(self) -> None: ...
