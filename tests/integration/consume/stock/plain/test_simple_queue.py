"""``SimpleQueue``, ``SimpleBuffer`` and ``basic_get`` of kombu."""

import pytest

from tests.support.workers.consumers import held, none_held, publish, ready
from tests.support.workers.harness import Proj


def test_get_leaves_the_rest_to_others(proj: Proj) -> None:
    """After ``get`` of the first message, the others are still in the queue, and another consumer gets the second."""
    with proj.connection() as connection, proj.connection() as other:
        jobs, others = connection.SimpleQueue("jobs"), other.SimpleQueue("jobs")
        for n in range(3):
            jobs.put(n)
        assert jobs.get(timeout=20).payload == 0
        assert jobs.qsize() == 2
        assert others.get(timeout=20).payload == 1
        assert ready(proj.server.client()) == [2]


@pytest.mark.parametrize("no_ack", [False, True])
def test_basic_get_takes_one_message(proj: Proj, no_ack: bool) -> None:
    """``basic_get`` takes the next message, and holds it until it is acknowledged, except with ``no_ack``."""
    client = proj.server.client()
    with proj.connection() as connection:
        channel = connection.default_channel
        assert channel.basic_get("jobs", no_ack=no_ack) is None
        publish(connection, "a", "b")
        message = channel.basic_get("jobs", no_ack=no_ack)
        assert message.payload == "a"
        assert (ready(client), held(client)) == (["b"], 0 if no_ack else 1)
        if not no_ack:
            channel.basic_ack(message.delivery_tag)
        channel.basic_get("jobs", no_ack=no_ack)
    assert ready(client) == ([] if no_ack else ["b"])
    assert none_held(client)
