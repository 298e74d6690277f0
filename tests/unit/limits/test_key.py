"""Keys of limits: of what they are made, how they are written, and what is refused."""

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import pytest
from celery import Celery
from hypothesis import given
from hypothesis import strategies as st

from celery_ext import install
from celery_ext.limits import LimitDeclaration, declared_limit, read_key
from celery_ext.limits.key import MAX_KEY
from kombu_delayq import InvalidLimit


class Plan(str, Enum):  # noqa: UP042  # as older code writes it; its own text is another one
    FREE = "free"


class Level(IntEnum):
    LOW = 1


def export(account: Any, month: Any = "May", *, region: Any = "eu") -> None: ...


@pytest.fixture
def declared(app: Celery) -> Callable[..., LimitDeclaration]:
    """Declares a task with a limit, and returns what was read of it."""
    install(app)

    def declare(limit: Any, function: Any = export, **options: Any) -> LimitDeclaration:
        app.tasks.pop("t", None)
        task = app.task(name="t", limit=limit, lazy=False, **options)(function)
        found: LimitDeclaration = task.declared_limit
        return found

    return declare


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (-1.5, "-1.5"),
        (True, "True"),
        ("plain", "plain"),
        ("", ""),
        ("a,b c", "a%2Cb%20c"),
        ("100%", "100%25"),
        ("_.-:@~+=/", "_.-:@~+=/"),
        ('"ü\n', "%22%C3%BC%0A"),
        ("\ud800", "%3F"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (Decimal("1.10"), "1.10"),
        (date(2030, 1, 2), "2030-01-02"),
        (datetime(2030, 1, 2, 3, tzinfo=UTC), "2030-01-02T03:00:00+00:00"),
        (Plan.FREE, "free"),
        (Level.LOW, "1"),
    ],
)
def test_a_value_is_written_in_one_way(declared: Any, value: Any, text: str) -> None:
    """Positional or named, and as part of a key that a call gives once more, the key has the same bytes."""
    found = declared(("account", "account"))
    assert found.key((value,), {}) == found.key((), {"account": value}) == f"account:{text}"
    assert read_key(f"account:{text}") == f"account:{text}"


def test_values_are_joined_and_defaults_count(declared: Any) -> None:
    """The values come in the order of the declaration; an argument that a call omits has its default."""
    found = declared(("a.b-c_1", "region", "account", "month"))
    assert found.key((7,), {}) == "a.b-c_1:eu,7,May"
    assert found.key((7, "June"), {"region": "x,y"}) == "a.b-c_1:x%2Cy,7,June"
    assert declared("stripe").key((), {}) == declared(["stripe"]).key((7,), {}) == "stripe"
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("value", [None, [1], b"a", object()])
def test_a_value_without_a_plain_text_is_refused(declared: Any, value: Any) -> None:
    """What has no value, or no text that is its own, makes no key; the error names task and argument."""
    with pytest.raises(InvalidLimit, match=r"limit 'account' of task t cannot be made of the argument month"):
        declared(("account", "month")).key((1, value), {})


def test_a_missing_argument_is_refused(declared: Any) -> None:
    """A call that omits an argument without a default has no key, nor has one whose default is None."""
    with pytest.raises(InvalidLimit, match="needs the argument account"):
        declared(("account", "account")).key((), {})

    def export(account: int | None = None) -> None: ...

    with pytest.raises(InvalidLimit, match="needs the argument account"):
        declared(("account", "account"), export).key((), {})


@pytest.mark.parametrize(
    ("limit", "what"),
    [
        ("account:7", "has the name 'account:7'"),
        ("", "has the name ''"),
        ("ü", "has the name 'ü'"),
        ("x" * 51, "has the name"),
        (("ac count", "account"), "has the name 'ac count'"),
        (("account", "acount"), r"names 'acount', which is no argument of its function \(did you mean 'account'"),
        (("account", "self"), "names 'self'"),
        (("account", 7), "is a name, such as"),
        ((), "is a name, such as"),
        (7, "is a name, such as"),
    ],
)
def test_a_wrong_declaration_is_an_error(declared: Any, limit: Any, what: str) -> None:
    """The task cannot be declared."""
    with pytest.raises(InvalidLimit, match=f"limit of task t.*{what}"):
        declared(limit)


def test_arguments_are_those_of_the_function_however_the_task_is_made(app: Celery, declared: Any) -> None:
    """The task itself is none of them, and a function that takes any names has them all."""

    def bound(self: Any, account: int) -> None: ...

    def anything(*args: int, **kwargs: int) -> None: ...

    found = [declared(("a", "account"), bound, bind=True), declared(("a", "account"), autoretry_for=(OSError,))]
    assert [one.key((7,), {}) for one in found] == ["a:7", "a:7"]
    assert declared(("a", "account"), anything).key((), {"account": 7}) == "a:7"

    def many(*account: int) -> None: ...

    with pytest.raises(InvalidLimit, match="names 'account'"):
        declared(("a", "account"), many)
    with pytest.raises(InvalidLimit, match="its function shows none"):
        declared_limit(type("Least", (), {"name": "t", "limit": ("a", "account"), "run": staticmethod(min)}))

    class Export(app.Task):
        name = "class"
        limit = ("a", "account")

        def run(self, account: int) -> None: ...

    assert app.register_task(Export()).declared_limit.key((7,), {}) == "a:7"
    assert declared_limit(Export()) == app.tasks["class"].declared_limit


def test_annotations_may_declare_a_limit(app: Celery) -> None:
    """``task_annotations`` give a limit to a task, and a wrong one is an error, too."""
    app.conf.task_annotations = {"t": {"limit": ("account", "account")}, "u": {"limit": ("account", "x")}}
    install(app)
    assert app.task(name="t", lazy=False)(export).declared_limit.key((7,), {}) == "account:7"
    with pytest.raises(InvalidLimit, match="task u names 'x'"):
        _ = app.task(name="u", lazy=False)(export).run


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("", ""),
        ("stripe", "stripe"),
        ("account:7", "account:7"),
        ("account:", "account:"),
        ("account:a:b", "account:a:b"),
        ("account:a,b", "account:a,b"),
        ("account:a b", "account:a%20b"),
        ("account:a%2cb%", "account:a%2Cb%25"),
        ('account:"ü', "account:%22%C3%BC"),
    ],
)
def test_a_key_of_a_call_is_written_as_one_of_arguments(given: str, key: str) -> None:
    """The first colon ends the name, a comma stands between values, and what is encoded stays so."""
    assert read_key(given) == key


@pytest.mark.parametrize("given", [7, None, ("account", 7), b"a", ":7", "ü:7", "ac count:7", "account\n"])
def test_a_wrong_key_of_a_call_is_an_error(given: Any) -> None:
    """What is no text, or has no name of a limit, is refused."""
    with pytest.raises(InvalidLimit, match="limit of a call"):
        read_key(given)


@given(st.text(max_size=400))
def test_every_key_is_plain_short_and_stays_as_it_is(text: str) -> None:
    """A key has plain characters, ends at 200, and is itself when a call gives it; other values make other keys."""
    key = read_key(f"a:{text}")
    assert len(key) <= MAX_KEY
    assert key.isascii()
    assert all(each.isalnum() or each in "_.-:@%~+,=/" for each in key)
    assert read_key(key) == key


def test_a_long_key_has_a_hash_for_its_tail(declared: Any) -> None:
    """Keys that differ only there stay apart, and are the same in both ways to give them."""
    found, long = declared(("account", "account")), "ü" * 150
    first, second = (found.key((long + end,), {}) for end in "ab")
    assert first != second
    assert first == read_key(f"account:{long}a")
    assert len(first) <= MAX_KEY
    assert read_key(first) == first
