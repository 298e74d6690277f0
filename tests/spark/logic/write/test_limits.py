"""The key of a limit in the message of a row is that of the call which means the same."""

import json
import pickle
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from celery_ext import install
from celery_ext.limits import LIMIT_HEADER, LimitDeclaration, declared_limit
from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.errors import InvalidSparkOption
from tests.support.spark import apps
from tests.support.spark.making import TASK, batch_of, errors_of, kwargs_of, made_of, offers_of, sole


def settings_of(limit: Any, function: Any = None, *, installed: bool = True) -> AppSettings:
    """Returns what executors get of an app whose task has a limit."""

    def anything(*args: Any, **kwargs: Any) -> None: ...

    app = apps.make("limits")
    if installed:
        install(app)
    app.task(name=TASK, shared=False, limit=limit)(function or anything)
    settings: AppSettings = pickle.loads(pickle.dumps(apps.settings_of(app).without_broker()))
    return settings


def key_of(body: str) -> str | None:
    found: str | None = json.loads(body)["headers"].get(LIMIT_HEADER)
    return found


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize(
    "value",
    [
        pa.array(["O'Brien, ü%"]),
        pa.array([7]),
        pa.array([2.0]),
        pa.array([True]),
        pa.array([Decimal("12.50")]),
        pa.array([date(2024, 2, 29)]),
        pa.array([datetime(2024, 2, 29, 12, 30, tzinfo=UTC)], pa.timestamp("us", "UTC")),
    ],
)
def test_a_key_is_made_of_what_the_task_gets(value: pa.Array, installed: bool) -> None:
    """Of the value of a column the key is made that ``apply_async`` makes of the value which the worker gets."""
    settings = settings_of(("account", "who"), installed=installed)
    _, offer = sole(made_of(batch_of(who=value), settings))
    assert key_of(offer.body) == settings.limits[TASK].key((), kwargs_of(offer))
    assert f'"{LIMIT_HEADER}": "account:' in offer.body


def test_arguments_may_be_in_all_columns() -> None:
    """Positional arguments, those of ``kwargs``, defaults and UUIDs make keys, too."""

    def export(account: Any, month: str = "May") -> None: ...

    settings = settings_of(("account", "account", "month"), export)
    _, offer = sole(made_of(batch_of(args=[[7]]), settings))
    assert key_of(offer.body) == "account:7,May"
    _, offer = sole(made_of(batch_of(kwargs=['{"account": 7, "month": "a b"}']), settings))
    assert key_of(offer.body) == "account:7,a%20b"
    identity = UUID(int=7)
    _, offer = sole(made_of(batch_of(account=[str(identity).upper()]), settings, uuid_columns="account"))
    assert key_of(offer.body) == f"account:{identity},May"


def test_a_row_may_have_its_own_key() -> None:
    """The column goes before the option, and both before a header, which goes before the declaration."""
    settings = settings_of("stripe")
    own = ["account:7", None, "", "account:a b"]
    headers = [None, f'{{"{LIMIT_HEADER}": "account:9", "x": 1}}', None, None]

    def keys(**options: str) -> list[str | None]:
        made = made_of(batch_of(n=[0, 1, 2, 3], limit=own, headers=headers), settings, **options)
        return [key_of(offer.body) for _, offer in offers_of(made)]

    assert keys() == ["account:7", "account:9", None, "account:a%20b"]
    assert keys(limit="all") == ["account:7", "all", None, "account:a%20b"]
    _, offer = sole(made_of(batch_of(n=[1]), settings, limit=""))
    assert LIMIT_HEADER not in offer.body
    _, offer = sole(made_of(batch_of(n=[1]), settings, task="other.task"))
    assert LIMIT_HEADER not in offer.body


def test_a_row_without_a_key_is_a_bad_row() -> None:
    """A wrong key, and a value of which none can be made; a row that cancels a task needs none."""
    settings = settings_of(("account", "who"))
    [wrong] = errors_of(made_of(batch_of(who=pa.array([None], pa.int64())), settings))
    assert "limit 'account' of task logic.record cannot be made of the argument who" in wrong
    [wrong] = errors_of(made_of(batch_of(n=[1], limit=["ü:7"])))
    assert wrong.startswith("column limit, value 'ü:7'")
    made = made_of(batch_of(op=["cancel"], task_id=["a"]), settings)
    assert made == ({}, ["a"], [])


def test_wrong_limits_are_said_before_the_job() -> None:
    """An option that is no key, and a task of the app with a wrong declaration."""
    with pytest.raises(InvalidSparkOption, match="limit: limit of a call has the name 'ü'"):
        made_of(batch_of(n=[1]), limit="ü")
    with pytest.raises(InvalidSparkOption, match="the app has a wrong task: limit of task"):
        settings_of("ü", installed=False)


def test_a_declaration_is_that_of_the_app() -> None:
    """What executors get is what publishers read."""

    def export(account: int, month: str = "May") -> None: ...

    limits = settings_of(("account", "account"), export).limits
    app = apps.make("limits")
    install(app)
    task = app.task(name=TASK, shared=False, limit=("account", "account"))(export)
    assert limits[TASK] == task.declared_limit == declared_limit(task)
    assert isinstance(limits[TASK], LimitDeclaration)
    assert replace(AppSettings(), limits=limits).without_broker().limits == limits
