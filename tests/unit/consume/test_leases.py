"""What a consumer says of its lease, and asks for."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis

from kombu_delayq.consume.consumer import Consumer
from kombu_delayq.options import Options


class _Redis:
    """Consumers as Redis knows them, for one consumer."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.consumers = self
        self.keys = SimpleNamespace(slot_group=str)
        self.options = Options()
        self.are_new: list[bool] = []
        self._answers = list(answers)

    def note_queues(self, queues: Any) -> None:
        """Knows no queues."""

    def heartbeat(self, *_: Any, is_new: bool, **__: Any) -> bool:
        """Gives the next answer."""
        self.are_new.append(is_new)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_lease_that_redis_never_gave_is_asked_for_as_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    """When the first request fails, the next one is for a new lease again, and nobody was silent."""
    consumer, store = Consumer(list), cast(Any, _Redis(redis.ConnectionError("away"), True, True))
    with pytest.raises(redis.ConnectionError):
        consumer.renew(store, "")
    consumer.renew(store, "")
    consumer.renew(store, "")
    assert store.are_new == [True, True, False]
    assert not caplog.records


@pytest.mark.parametrize(("ago_s", "said"), [(0, "Redis does not know the lease"), (70, "was silent for longer than")])
def test_a_lost_lease_is_told_from_one_that_has_ended(
    ago_s: float, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer that has renewed its lease in time says that Redis has lost it; only another one was silent."""
    consumer, store = Consumer(list), cast(Any, _Redis(True, False, True))
    consumer.renew(store, "")
    consumer._leases[""].renewed_at -= ago_s
    consumer.renew(store, "")
    [record] = caplog.records
    assert said in record.getMessage()
