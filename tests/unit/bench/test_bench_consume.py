"""What the measures of consuming make of messages and of what they see."""

import base64
import json

import pytest

from tests.bench.targets.consume.kinds import TASK_ID, copies
from tests.bench.targets.consume.latency import Case, with_due
from tests.bench.targets.consume.rates import Cost, Turn

BODY = base64.b64encode(json.dumps([[0.0], {}, {"chord": None}]).encode()).decode()
MESSAGE = json.dumps({"body": BODY, "headers": {"id": TASK_ID, "root_id": TASK_ID}, "properties": {"priority": 0}})


def test_a_worker_costs_what_all_its_turns_cost() -> None:
    """CPU time is shared by the tasks of all turns; the rate is the median, so that one turn without tasks is none."""
    cost = Cost.of([Turn(0.5, 100, 0.01, 0.05), Turn(0.5, 0, 0.0, 0.0), Turn(0.5, 300, 0.03, 0.15)])
    assert cost == pytest.approx(Cost(per_s=200, redis_us=100, worker_us=500))


def test_copies_of_a_message_have_ids_of_their_own() -> None:
    """Each copy is the template with one new id in all places; pages hold as many as were asked for together."""
    pages = list(copies(MESSAGE, 450))
    assert [len(page) for page in pages] == [200, 200, 50]
    ids = {made for page in pages for made, _ in page}
    assert len(ids) == 450
    for page in pages:
        for made, message in page:
            assert json.loads(message)["headers"] == {"id": made, "root_id": made}


def test_a_message_gets_its_due_time_as_argument() -> None:
    """The first argument of the task is replaced, and nothing else."""
    body = json.loads(base64.b64decode(json.loads(with_due(json.loads(MESSAGE), 12.5))["body"]))
    assert body == [[12.5], {}, {"chord": None}]


def test_messages_go_to_the_lists_of_their_priorities() -> None:
    """Without priorities each queue has one list; with them one for each of kombu's four steps."""
    assert Case(2, priorities=False).lists == [("bench0", 0), ("bench1", 0)]
    assert Case(1, priorities=True).lists == [
        ("bench0", 0),
        ("bench0\x06\x163", 3),
        ("bench0\x06\x166", 6),
        ("bench0\x06\x169", 9),
    ]
