"""``Selection``: which waiting messages a filter means."""

import json
from math import inf, nan
from typing import Any

import pytest

from celery_ext.waiting import Argument, DelayedTask, Selection
from celery_ext.waiting.search import Position, cursor_of, read_cursor
from celery_ext.waiting.selection import DEEPEST, LONGEST
from kombu_delayq.store.types import Waiting
from tests.support.messages import changed_message, plain_message, task_message

ORDER = {"id": 17, "name": 'O\'Brien "Bob"', "paid": True, "lines": [{"sku": "A-1", "n": 2.0}], "a.b": {"c": None}}


def task_of(args: tuple[Any, ...] = (), queue: str = "q", due_ms: float = 1000.0, **options: Any) -> DelayedTask:
    """Returns a waiting task as Celery sends it."""
    message = task_message(args, **options)
    return DelayedTask(Waiting(queue, "i", due_ms, 0, json.dumps(message).encode()))


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, True),
        ({"queues": None}, True),
        ({"queues": ()}, False),
        ({"queues": ("p", "q")}, True),
        ({"queues": ("p",)}, False),
        ({"from_ms": 1000}, True),
        ({"from_ms": 1000.001}, False),
        ({"to_ms": 1000}, False),
        ({"to_ms": 1000.001}, True),
        ({"task": "proj.task"}, True),
        ({"task": "proj.*"}, True),
        ({"task": "p?oj.[st]ask"}, True),
        ({"task": "proj"}, False),
        ({"task": "PROJ.task"}, False),
        ({"task": "*.TASK"}, False),
        ({"priority": 0}, True),
        ({"priority": 9}, False),
        ({"retried": True}, False),
        ({"q": "O'Brien", "task": "proj.other"}, False),
    ],
)
def test_all_conditions_have_to_hold(conditions: dict[str, Any], expected: bool) -> None:
    """A message matches if its queue, due time, task, priority and arguments are as wanted, and not otherwise."""
    assert Selection(**conditions).matches(task_of((ORDER,))) is expected


def test_tasks_that_wait_for_a_retry() -> None:
    """A task with retries is meant, however its message is written, and one that says nothing of retries is not."""
    message = task_message()
    only = Selection(retried=True)
    assert (only.reads_bodies, only.as_json()) == (True, {"retried": True})
    for retries, expected in ((0, False), (1, True), (12, True), (None, False)):
        message["headers"]["retries"] = retries
        for separators in ((", ", ": "), (",", ":")):
            body = json.dumps(message, separators=separators).encode()
            assert only.matches(DelayedTask(Waiting("q", "i", 1000.0, 0, body))) is expected


@pytest.mark.parametrize("name", ["shop.sync[eu]", "shop.sync [*]?", "[!"])
def test_a_name_with_the_characters_of_a_pattern_means_itself(name: str) -> None:
    """A task whose name has such characters is meant by its name as it is."""
    message = task_message()
    message["headers"]["task"] = name
    assert Selection(task=name).matches(DelayedTask(Waiting("q", "i", 1000.0, 0, json.dumps(message).encode())))
    assert not Selection(task=name).matches(task_of())


@pytest.mark.parametrize(("name", "is_read"), [("proj.other", False), ("*.other", False), ("proj.task", True)])
def test_a_message_of_another_task_is_not_read(name: str, is_read: bool) -> None:
    """Of many messages few are meant: the beginning of each tells that it is another task's."""
    task = task_of((ORDER,))
    assert Selection(task=name).accepts(task) is is_read
    assert ("body" in vars(task)) is is_read


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ("o'brien", True),
        ('"bob"', True),
        ("'id': 17", True),
        ('"id": 17', True),
        ("a-1", True),
        ("order", True),
        ("18", False),
        ("  a-1 ", True),
        ("needle", True),
        ("kwargs.order.id=17", True),
        ("kwargs.order.id=17.0", True),
        ("kwargs.order.id=1", False),
        ("kwargs.order.id=true", False),
        ("kwargs.order.paid=true", True),
        ("kwargs.order.paid=1", False),
        ("kwargs.order.lines.0.sku=A-1", True),
        ('kwargs.order.lines.0.sku="A-1"', True),
        ("kwargs.order.lines.0.n=2", True),
        ("kwargs.order.lines.1.sku=A-1", False),
        ("kwargs.order.lines.-1.sku=A-1", False),
        ("kwargs.order.lines.9999999999999.sku=A-1", False),
        ('kwargs.order.lines=[{"sku": "A-1", "n": 2}]', True),
        ("kwargs.order.lines=[]", False),
        ("kwargs.order.a.b.c=null", True),
        ("kwargs.order.a.b.c=", False),
        ("kwargs.empty=", True),
        ("kwargs.order.none=1", False),
        ("kwargs.url=https://a/?b=c", True),
        ("kwargs.digits=17", True),
        ("args.0=x", True),
        ("args.0=y", False),
        ("args.1=3", True),
        ('args=["x", 3, "-"]', True),
        ("url=https", False),
    ],
)
def test_arguments_are_searched(q: str, expected: bool) -> None:
    """Text is found in any argument whatever its case and quotes; a path with a value finds just that value there."""
    kwargs = {"order": ORDER, "text": "-" * 2000 + "Needle", "empty": "", "url": "https://a/?b=c", "digits": "17"}
    assert Selection(q=q).matches(task_of(("x", 3, "-"), kwargs=kwargs)) is expected


def test_a_uuid_is_found_as_text() -> None:
    """A value that the serializer brings back as another type, such as a UUID or a datetime, is compared as text."""
    from datetime import UTC, datetime
    from decimal import Decimal
    from uuid import UUID

    task = task_of((UUID(int=5), Decimal("1.50"), datetime(2030, 1, 2, tzinfo=UTC)))
    for q in (f"args.0={UUID(int=5)}", "args.1=1.50", "args.2=2030-01-02T00:00:00+00:00"):
        assert Selection(q=q).matches(task)
    assert not Selection(q="args.1=1.5").matches(task)


@pytest.mark.parametrize("given", ["0=x-1", '0="x-1"', "0=b'x-1'", "1=\\xff", "1=b'\\xff'"])
def test_bytes_are_found_as_text(given: str) -> None:
    """Bytes, which JSON, YAML and msgpack may bring back, are found by their text, and as Python writes them."""
    assert Argument.parse(given).is_in(task_of((b"x-1", b"\xff")))
    assert not Argument.parse(given).is_in(task_of((b"x-2", b"\xfe")))


@pytest.mark.parametrize(
    ("given", "shown", "expected"),
    [
        ("0=x", "args.0=x", True),
        ("args.1=3", "args.1=3", True),
        ("1=3.0", "args.1=3.0", True),
        ('1="3"', 'args.1="3"', False),
        ("2.id=17", "args.2.id=17", True),
        ("kwargs.digits=17", "kwargs.digits=17", True),
        ('kwargs.digits="17"', 'kwargs.digits="17"', True),
        ("kwargs.order.paid=true", "kwargs.order.paid=true", True),
        ("kwargs.order.lines.0.sku=A-1", "kwargs.order.lines.0.sku=A-1", True),
        ("kwargs.order.paid=yes=no", "kwargs.order.paid=yes=no", False),
        ("3=x", "args.3=x", False),
    ],
)
def test_an_argument_at_a_path(given: str, shown: str, expected: bool) -> None:
    """A path is a position or begins with args or kwargs; its value is JSON, or else text."""
    argument = Argument.parse(given)
    task = task_of(("x", 3, {"id": 17}), kwargs={"order": ORDER, "digits": "17"})
    assert str(argument) == shown
    selection = Selection(arguments=(argument,), task="proj.*")
    assert selection.matches(task) is expected
    assert selection.as_json()["arguments"] == [shown]
    assert not selection.cannot_read(task)


def test_values_of_python_have_their_type() -> None:
    """A number is not met by the text of its digits, nor a text by a number; a UUID or a moment is met by itself."""
    from datetime import UTC, datetime
    from decimal import Decimal
    from uuid import UUID

    values = (7, "7", None, [1, {"a": 2}], UUID(int=5), Decimal("1.50"), datetime(2030, 1, 2, tzinfo=UTC))
    task = task_of(values)
    for at, value in enumerate(values):
        assert Argument.of_value(str(at), value).is_in(task), value
    for at, value in ((0, "7"), (0, True), (1, 7), (2, 0), (2, ""), (3, [1]), (4, UUID(int=6)), (5, Decimal("1.51"))):
        assert not Argument.of_value(f"args.{at}", value).is_in(task), value
    assert Argument.of_value("0", 7.0).is_in(task)
    assert Argument.of_value("3", (1, {"a": 2.0})).is_in(task)
    assert str(Argument.of_value("kwargs.a.b", 7)) == "kwargs.a.b=7"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("0", "'0' is not PATH=VALUE"),
        ("user=7", "the path 'user' begins neither with args or kwargs nor with a position"),
        ("=7", "the path '' begins neither"),
        ("kwargs.a..b=7", "has an empty part"),
        (f"0{'.0' * DEEPEST}=1", "has 17 parts"),
    ],
)
def test_a_wrong_path_is_named(given: str, complaint: str) -> None:
    """What is no path, or has no value, raises a ValueError that says what is wrong."""
    with pytest.raises(ValueError, match=complaint):
        Argument.parse(given)


def test_arguments_that_cannot_be_read_are_told_apart() -> None:
    """A task whose arguments are in a pickle does not match a value in them; whether it would is unknown."""
    pickled = task_of((17,), serializer="pickle")
    wanted = Selection(task="proj.*", arguments=(Argument.parse("0=17"),))
    assert not wanted.matches(pickled)
    assert wanted.cannot_read(pickled)
    for other in (Selection(task="shop.*", arguments=wanted.arguments), Selection(task="proj.*")):
        assert not other.cannot_read(pickled)
    assert not wanted.cannot_read(DelayedTask(Waiting("q", "i", 1000.0, 0, None)))


@pytest.mark.parametrize(
    "message", [None, b"\xff", b"[" * 100_000, b"7", json.dumps(plain_message({"a": 1})).encode()], ids=range(5)
)
def test_what_is_no_task_matches_no_task(message: bytes | None) -> None:
    """A lost or damaged message, and one of plain kombu, has no task name and no arguments, and breaks no search."""
    task = DelayedTask(Waiting("q", "i", 1000.0, 0, message))
    assert Selection().matches(task)
    assert not Selection(task="*").matches(task)
    assert not Selection(q="a").matches(task)
    assert not Selection(q="kwargs.a=1").matches(task)


def test_arguments_that_are_nested_too_deeply_do_not_match() -> None:
    """Arguments that Python cannot write are passed over."""
    deep = b"[" * 5000 + b"]" * 5000
    task = DelayedTask(Waiting("q", "i", 1.0, 0, json.dumps(changed_message(b"[[%s], {}, {}]" % deep)).encode()))
    assert not Selection(q="needle").matches(task)


@pytest.mark.parametrize(
    ("conditions", "complaint"),
    [
        ({"queues": "orders"}, "queues='orders' are no names"),
        ({"queues": (5,)}, "are no names of queues"),
        ({"from_ms": nan}, "from_ms=nan is no time"),
        ({"to_ms": "now"}, "to_ms='now' is no time"),
        ({"from_ms": 2, "to_ms": 2}, "the range is empty: it begins at 1970-01-01T00:00:00.002000"),
        ({"from_ms": inf}, "the range is empty"),
        ({"task": ""}, "task='' is no text"),
        ({"q": "  "}, "is no text to look for"),
        ({"q": "x" * (LONGEST + 1)}, "q has 501 characters"),
        ({"q": 5}, "q=5 is no text"),
        ({"q": "kwargs.a..b=1"}, "empty part"),
        ({"q": "kwargs.=1"}, "empty part"),
        ({"q": f"args{'.0' * (DEEPEST + 1)}=1"}, "17 parts"),
        ({"priority": 10}, "priority=10 is no number from 0 to 9"),
        ({"priority": True}, "priority=True"),
        ({"priority": "3"}, "priority='3'"),
    ],
)
def test_a_wrong_condition_is_named(conditions: dict[str, Any], complaint: str) -> None:
    """A condition of the wrong kind raises a ValueError that has its name and says what is wrong."""
    with pytest.raises(ValueError, match=complaint.replace("(", r"\(")):
        Selection(**conditions)


def test_the_conditions_in_json() -> None:
    """Conditions that are given come out as JSON values, others not at all."""
    assert Selection().as_json() == {}
    assert json.loads(json.dumps(Selection(queues=("b", "a"), from_ms=0, to_ms=1, task="t", priority=0).as_json())) == {
        "queues": ["a", "b"],
        "from": "1970-01-01T00:00:00+00:00",
        "to": "1970-01-01T00:00:00.001000+00:00",
        "task": "t",
        "priority": 0,
    }


@pytest.mark.parametrize(
    "position",
    [
        Position(b"1764000000000.125", "orders", "hash", b"id"),
        Position(b"-inf", "", "redisson", b""),
        Position(b"1.5e+17", "ü \udcff/?&#+", "redisson", bytes(range(256))),
    ],
)
def test_a_cursor_survives_in_a_url(position: Position) -> None:
    """A cursor has only characters that a URL takes as they are, and leads back to its position with any range."""
    text = cursor_of(position, Selection(q="x"))
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert read_cursor(text, Selection(q="x", from_ms=5)) == position


def test_a_cursor_of_a_long_id_is_bounded() -> None:
    """An id of any length makes no cursor that is too long for a URL."""
    text = cursor_of(Position(b"1", "q", "hash", b"\xff" * 100_000), Selection())
    assert len(text) < 5000
    assert read_cursor(text, Selection()).place.startswith(b"\xff" * 600)


def test_a_bad_cursor_is_refused() -> None:
    """Whatever is no cursor of this filter raises one clear ValueError: changed, cut, made up, of another filter."""
    good = cursor_of(Position(b"1764000000000", "orders", "hash", b"id"), Selection())
    changed = [good[:at] + ("A" if good[at] != "A" else "B") + good[at + 1 :] for at in range(len(good) - 1)]
    for bad in [*changed, good[:-3], good + "AAAA", "", "x", "ü", "=" * 9, "A" * 100_000, "\0"]:
        with pytest.raises(ValueError, match="the cursor is damaged or belongs to another filter"):
            read_cursor(bad, Selection())
    by_argument = Selection(arguments=(Argument.parse("0=1"),))
    for other in (
        by_argument,
        Selection(task="t"),
        Selection(queues=("q",)),
        Selection(priority=1),
        Selection(q="x"),
        Selection(retried=True),
    ):
        with pytest.raises(ValueError, match="belongs to another filter"):
            read_cursor(good, other)
