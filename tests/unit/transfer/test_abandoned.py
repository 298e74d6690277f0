import pytest

from kombu_delayq.store.types import DelayedQueue, Head, WatchedHeads
from kombu_delayq.transfer.due_times import KnownHead
from kombu_delayq.transfer.standby import SILENCE_MS, AbandonedHeads

NOW_MS = 1_800_000_000_000.0
LATE_MS, UNREACHED_MS = 20.0, 1000.0


class Looks:
    """Looks of a standby at heads, one after the other. Each knows what the looks before have shown.

    Due times are given by queue, in ms before ``NOW_MS``.
    """

    def __init__(self) -> None:
        self._abandoned = AbandonedHeads()
        self._known: dict[DelayedQueue, KnownHead] = {}

    def know(self, **ago_ms: float) -> None:
        """Notes heads that were announced."""
        for queue, ago in ago_ms.items():
            self._known[DelayedQueue(queue, "hash")] = KnownHead(NOW_MS - ago, NOW_MS - ago, None)

    def transfer(self, queue: str) -> None:
        """Notes that the standby itself has transferred the head of a queue."""
        del self._known[DelayedQueue(queue, "hash")]

    def look(self, after_ms: float = 0.0, *, gone: bool = False, entry: bytes = b"", **ago_ms: float) -> list[str]:
        """Looks ``after_ms`` after ``NOW_MS``. Returns the queues whose heads are abandoned."""
        now_ms = NOW_MS + after_ms
        heads = {DelayedQueue(queue, "hash"): Head(NOW_MS - ago, entry) for queue, ago in ago_ms.items()}
        found = self._abandoned.find(self._known, WatchedHeads(now_ms, gone, heads), LATE_MS, UNREACHED_MS)
        self._known = {
            delayed: KnownHead(head.due_ms, max(head.due_ms, now_ms), head.entry) for delayed, head in heads.items()
        }
        return [delayed.queue for delayed in found]


@pytest.fixture
def looks() -> Looks:
    return Looks()


def test_what_a_leader_that_is_gone_has_left_is_abandoned(looks: Looks) -> None:
    """Heads that are late are found at the first look, the longest overdue first, and others are not."""
    looks.know(a=50, b=60, c=70)
    assert looks.look(gone=True, a=50, b=60, c=5) == ["b", "a"]


def test_a_leader_that_is_there_has_time(looks: Looks) -> None:
    """While the leader seems to be there, a head is abandoned when nothing has left for some time."""
    looks.know(a=50)
    assert looks.look(a=50) == []
    assert looks.look(SILENCE_MS / 2, a=50) == []
    assert looks.look(SILENCE_MS, a=50) == ["a"]


def test_after_a_silence_each_head_is_abandoned_until_a_sign_of_life(looks: Looks) -> None:
    """Heads that become due during the silence are found at once; when one leaves by itself, there is time again."""
    looks.know(a=50)
    looks.look(a=50)
    assert looks.look(SILENCE_MS, a=50) == ["a"]
    looks.transfer("a")
    assert looks.look(SILENCE_MS + 50, b=-SILENCE_MS) == ["b"]
    looks.transfer("b")
    looks.know(c=-SILENCE_MS - 100)
    assert looks.look(SILENCE_MS + 200, a=-SILENCE_MS - 150) == []


@pytest.mark.parametrize("gone", [True, False])
def test_what_was_due_before_a_sign_of_life_is_not_abandoned(looks: Looks, gone: bool) -> None:
    """When a head has left that was due later, the leader was alive and will reach the earlier ones."""
    looks.know(a=50, b=40)
    assert looks.look(gone=gone, a=50) == []
    assert looks.look(50, gone=gone, a=50) == (["a"] if gone else [])


def test_what_was_due_after_the_last_sign_of_life_is_abandoned(looks: Looks) -> None:
    """When the head that left was due before, the leader may have died since."""
    looks.know(a=50, b=60)
    assert looks.look(gone=True, a=50) == ["a"]


def test_a_leader_with_a_backlog_is_left_alone(looks: Looks) -> None:
    """As long as a late leader moves on, nothing is abandoned, however late it is."""
    looks.know(a=500)
    for n in range(20):
        assert looks.look(50 * n, a=490 - 50 * n) == []


def test_many_messages_of_one_due_time_move_on_too(looks: Looks) -> None:
    """A head of the same due time, but of another message, shows that the one before it has left."""
    looks.know(a=50)
    for n in range(20):
        assert looks.look(50 * n, entry=str(n).encode(), a=50) == []


def test_what_a_living_leader_never_reaches_is_abandoned(looks: Looks) -> None:
    """While other heads leave, one that does not is found at last, and goes on being found while it is overdue."""
    looks.know(a=50, b=50)
    for n in range(24):
        assert looks.look(50 * n, a=50, b=50 - 50 * n) == []
    assert looks.look(UNREACHED_MS + 200, a=50, b=-UNREACHED_MS - 150) == ["a"]
    assert looks.look(UNREACHED_MS + 250, a=50, b=-UNREACHED_MS - 200) == ["a"]


def test_a_leader_that_is_very_late_reaches_heads_late(looks: Looks) -> None:
    """Where the leader reaches all heads a second late, one that it has not reached for a second is not abandoned."""
    looks.know(a=50, b=1000)
    for n in range(50):
        assert looks.look(50 * n, a=50, b=1000 - 50 * n) == []
