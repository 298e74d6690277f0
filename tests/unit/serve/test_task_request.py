"""The fields of ``POST /v1/tasks``."""

from typing import Annotated, Any, get_args

import msgspec
import pytest
from celery import Task

from celery_ext.serve.api.task_request import OPTION, TaskRequest, option_fields
from celery_ext.serve.problems import Problem
from kombu_delayq.message.once import ADD, MODES, IfWaiting, modes_in_words


def request(**fields: Any) -> TaskRequest:
    """Returns a request for a task of no app."""
    return msgspec.convert({"task": "shop.remind", **fields}, TaskRequest)


def test_a_field_that_is_marked_goes_to_celery() -> None:
    """Requests that differ in it are of different kinds, and nothing but its declaration names a field."""

    class Longer(TaskRequest):
        time_limit: Annotated[int | None, OPTION] = None

    assert option_fields(Longer) == (*option_fields(TaskRequest), "time_limit")
    assert request(priority=3, delay_chain="4m").options(None) == {"priority": 3, "delay_chain": "4m"}
    assert request(priority=3).kind != request(priority=4).kind
    assert request(args=[1], headers={"traceparent": "00"}).kind == request(args=[2]).kind


def test_what_waits_is_asked_by_the_call_or_else_by_the_task_of_a_key() -> None:
    """A key means the mode of the task, else ``keep``; without a key the task's own mode counts in Celery."""
    task = type("Remind", (Task,), {"if_waiting": "replace"})()
    assert request(waiting_key="k").options(None) == {"if_waiting": "keep"}
    assert request(waiting_key="k").options(task) == {"if_waiting": "replace"}
    assert request(waiting_key="k", if_waiting="add").options(task) == {"if_waiting": "add"}
    assert request().options(task) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"countdown": 1, "eta": "2030-01-01T09:00:00Z"},
        {"id": "a", "waiting_key": "b"},
        *({"if_waiting": mode} for mode in MODES if mode != ADD),
        {"delay_chain": "soon"},
        {"limit": "ac count:7"},
    ],
)
def test_fields_that_do_not_go_together_are_refused(fields: dict[str, Any]) -> None:
    """The problem names what is wrong."""
    with pytest.raises(Problem) as refused:
        request(**fields).check()
    assert refused.value.status == 422


def test_the_modes_are_those_of_the_table() -> None:
    """Type checkers and requests know the words of the table, and each is explained."""
    assert get_args(IfWaiting) == tuple(MODES)
    assert all(f"`{mode}`: " in modes_in_words() for mode in MODES)
