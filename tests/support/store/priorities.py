"""Values of kombu's option ``priority_steps``, and the lists in which kombu puts messages with them."""

from typing import Any

from kombu.transport.redis import Channel

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
STEPS = [(0, 3, 6, 9), (0,), (0, 9), tuple(range(10)), (3, 6), (9,), (0, 5), (1, 2, 3), *ODD_STEPS]


class Kombu(Channel):
    """Kombu's naming of lists, without a connection."""

    def __init__(self, steps: Any, separator: str) -> None:
        self.priority_steps = steps
        self.sep = separator

    def __del__(self) -> None: ...
