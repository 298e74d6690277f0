"""Transport options are checked, all at once, with the nearest valid name for each mistake."""

import dataclasses
import logging
import math
import re
from typing import Any

import pytest
from kombu import Connection
from kombu.transport import redis as stock

from kombu_delayq import InvalidOptions
from kombu_delayq.options import NAMES, Options, parse

OF_KOMBU = stock.SentinelChannel.from_transport_options
DOTTED = "kombu_delayq.transport:Transport"

VALID: dict[str, list[Any]] = {
    "layout": ["hash"],
    "transfer": [True, False],
    "consume": ["reliable", "brpop"],
    "consumer_ttl": [1, 60.0, 3600],
    "delivery_limit": [None, 1, 20],
    "dead_letter_queue": ["dead", "ünï"],
    "dead_letter_ttl": [None, 1, 7_776_000.0],
    "dead_letter_max": [None, 1, 10_000],
    "max_delay": [None, 0, 0.5, 86400],
    "unknown_ttl": [None, 0, 1.5, 600],
    "compact": [True, False],
    "poll_interval": [0.05, 1, 60],
    "overdue": ["run", {"q": "run", "*": "run"}],
    "max_lateness": [None],
    "transfer_rate": [None, 5, 0.5, [5, 10], (5, 10), {"q": 5, "*": [5, 10]}, {}],
    "limits": [
        None,
        {},
        {"a": {}},
        {"a.b-c_1": {"running": 0, "rate": [5, 10], "weight": 0.5}},
        {"a": {"running": None}},
    ],
    "credential_provider": [None, "proj.tokens:Provider"],
    "journal_url": [None, "sqlite:///journal.db"],
    "journal": ["far", "all"],
    "journal_horizon": [1, 86_400.0],
    "journal_lead": [1, 1_800.0],
    "journal_retention": [0, 86_400.0],
    "journal_restore": ["ask", "auto"],
}
WRONG: dict[str, list[Any]] = {
    "layout": ["tape", None, 1, ["hash"], {}],
    "transfer": [1, 0, "yes", "False", None],
    "consume": ["get", None, 1, ["reliable"], {}],
    "consumer_ttl": [0, 0.9, 3601, None, "60", True, math.inf, math.nan],
    "delivery_limit": [0, -1, 1.5, "20", True, math.inf],
    "dead_letter_queue": ["", None, 1, b"dead", ["dead"]],
    "dead_letter_ttl": [0, -1, "90d", True, math.inf, math.nan],
    "dead_letter_max": [0, -1, 1.5, "20", True, math.inf],
    "unknown_ttl": [-1, "600", True, math.inf, math.nan],
    "max_delay": [-1, "60", True, math.inf, math.nan, [60]],
    "compact": [None, 1, "yes"],
    "poll_interval": [0, 0.01, 61, -1, None, "1", True, math.inf, math.nan],
    "overdue": ["late", None, True, ["drop"]],
    "max_lateness": [0, 0.5, -1, "1h", True, math.inf, math.nan],
    "transfer_rate": [0, -1, "5", True, math.inf, [5], [5, 10, 15], [0, 5], [5, 0.5], ["5", 5], 2_000_000],
    "limits": [
        *(1, "account", ["account"], {"": {}}, {"a:1": {}}, {"a" * 51: {}}, {1: {}}, {"a": None}, {"a": 2}),
        *({"a": {"runing": 2}}, {"a": {"running": -1}}, {"a": {"running": 1.5}}, {"a": {"running": True}}),
        *({"a": {"rate": 0}}, {"a": {"rate": [5]}}, {"a": {"rate": "5"}}, {"a": {"weight": 0}}, {"a": {"weight": "2"}}),
    ],
    "credential_provider": ["", 1, True, b"proj.tokens", ["proj"]],
    "journal_url": ["", 1, b"sqlite", ["sqlite"]],
    "journal": ["near", None, True],
    "journal_horizon": [0, None, "1d", True, math.inf, math.nan],
    "journal_lead": [0, None, "30m", True, math.inf, math.nan],
    "journal_retention": [-1, None, "1d", True, math.inf, math.nan],
    "journal_restore": ["yes", None, True],
}
#: Options of kombu that are checked: their names, wrong and right values.
OF_KOMBU_CHECKED: list[tuple[str, list[Any], list[Any]]] = [
    ("global_keyprefix", [5, b"shop.", ["shop."]], [None, "", "shop."]),
    ("sep", [None, 5], ["", ":"]),
    ("visibility_timeout", [None, "3600", -1, True, math.nan, [60]], [0, 0.5, 3600, math.inf]),
    ("socket_timeout", ["5", -1, True, math.nan, [5]], [None, 0.5, 5]),
    ("socket_connect_timeout", ["5", -1, True, math.nan, [5]], [None, 0.5, 5]),
    ("health_check_interval", ["25", -1, True, math.nan, [25]], [None, 0, 0.5, 25]),
]


def test_tables_name_every_option() -> None:
    """Every option has its rows in the tables of these tests."""
    assert VALID.keys() == WRONG.keys() == NAMES


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in VALID.items() for value in values])
def test_valid_value_is_taken(name: str, value: Any) -> None:
    """A valid value is taken as it is, the other options keep their defaults, and nothing is warned of."""
    assert parse({name: value}, OF_KOMBU) == (dataclasses.replace(Options(), **{name: value}), "")


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_wrong_value_is_named(name: str, value: Any) -> None:
    """A value of the wrong type or out of range is refused, with the option and the value in the message."""
    with pytest.raises(InvalidOptions) as error:
        parse({name: value}, OF_KOMBU)
    assert re.search(rf"{re.escape(f'{name}={value!r}')} (is not|has) ", str(error.value))


@pytest.mark.parametrize("value", [["postgresql://user:secret@host/db"], b"postgresql://user:secret@host/db"])
def test_a_wrong_url_is_not_shown(value: Any) -> None:
    """A URL of the wrong type may have a password."""
    with pytest.raises(InvalidOptions) as error:
        parse({"journal_url": value}, OF_KOMBU)
    assert f"journal_url=<{type(value).__name__}> is not a text" in str(error.value)


@pytest.mark.parametrize("field", dataclasses.fields(Options), ids=lambda field: field.name)
def test_default_is_valid_and_explained(field: dataclasses.Field[Any]) -> None:
    """Each option has a default that passes its own check, and a help text."""
    assert field.metadata["check"](field.default) == field.default
    assert field.metadata["help"].endswith(".")


def test_all_mistakes_are_named_at_once() -> None:
    """One message names every misspelled name with the nearest valid one, and every wrong value."""
    given = {
        "polinterval": 1,
        "poll_intervall": 1,
        "max-delay": 60,
        "pollinterval": 10,
        "Layout": "hash",
        "poll_interval": "long",
        "transfer": 2,
        "visibility_timeout": 60,
    }
    with pytest.raises(InvalidOptions) as error:
        parse(given, OF_KOMBU)
    text = str(error.value)
    for mistake, nearest in (
        ("polinterval", "poll_interval"),
        ("poll_intervall", "poll_interval"),
        ("max-delay", "max_delay"),
        ("pollinterval", "poll_interval"),
        ("Layout", "layout"),
    ):
        assert f"{mistake!r} (did you mean {nearest!r}?)" in text
    assert "poll_interval='long' is not a number" in text
    assert "transfer=2 is not True or False" in text
    assert "visibility_timeout" not in text
    assert f"Its own are: {', '.join(sorted(NAMES))}" in text


def test_names_that_stock_kombu_reads_are_taken() -> None:
    """All names that kombu's channels, transport and connection read from the options pass without a word."""
    elsewhere = ("polling_interval", "max_retries", "interval_start", "interval_step", "interval_max", "errback")
    given = dict.fromkeys((*OF_KOMBU, *elsewhere, "connect_retries_timeout", "callback", "reauth_check_interval"), 1)
    assert parse({**given, "global_keyprefix": "shop.", "sep": ":"}, OF_KOMBU) == (Options(), "")


@pytest.mark.parametrize(("name", "wrong", "right"), OF_KOMBU_CHECKED)
def test_wrong_value_of_kombu_is_named(name: str, wrong: list[Any], right: list[Any]) -> None:
    """A value with which kombu itself fails later and unclearly is named, and all that kombu can use is taken."""
    for value in wrong:
        with pytest.raises(InvalidOptions) as error:
            parse({name: value}, OF_KOMBU)
        assert f"{name}={value!r} is not a " in str(error.value)
    for value in right:
        assert parse({name: value}, OF_KOMBU) == (Options(), "")


@pytest.mark.parametrize("given", [{"region": "eu"}, {"region": "eu", 7: 1, "wait_time_seconds": 3}])
def test_name_that_nobody_reads_is_only_warned_of(given: dict[Any, Any]) -> None:
    """Names that look like none of ours, and that stock kombu ignores too, are warned of all at once."""
    options, warning = parse(given, OF_KOMBU)
    assert options == Options()
    for name in given:
        assert repr(name) in warning


def test_misspelled_name_of_kombu_is_warned_of_with_the_nearest() -> None:
    """A misspelled option of kombu, which stock ignores silently, is warned of with the nearest valid name."""
    _, warning = parse({"visibility_timout": 60}, OF_KOMBU)
    assert "'visibility_timout' (did you mean 'visibility_timeout'?)" in warning


def test_values_that_may_be_secret_are_not_printed() -> None:
    """The values of options that are not ours, which may be passwords, are in no message."""
    given = {"sentinel_kwargs": {"password": "s3cret"}, "passwort": "s3cret", "poll_intervall": "s3cret"}
    with pytest.raises(InvalidOptions) as error:
        parse(given, OF_KOMBU)
    _, warning = parse({"sentinel_kwargs": {"password": "s3cret"}, "passwort": "s3cret"}, OF_KOMBU)
    assert "s3cret" not in str(error.value) + warning
    assert "'passwort'" in warning


def test_connection_refuses_wrong_options() -> None:
    """A kombu connection with wrong options fails before it connects anywhere."""
    connection = Connection("redis://nowhere.invalid", transport=DOTTED, transport_options={"max_dealy": 5})
    with pytest.raises(InvalidOptions, match="did you mean 'max_delay'"):
        connection.ensure_connection(max_retries=1)


def test_connection_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    """A name that nobody reads is warned of once in a process, however many connections there are."""
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            options = {"only_in_this_test": 1}
            assert Connection("redis://a", transport=DOTTED, transport_options=options).transport.options == Options()
    assert caplog.text.count("'only_in_this_test'") == 1


def test_master_name_belongs_to_sentinel() -> None:
    """``master_name`` is known where the connection is one of Sentinel, also with the plain dotted path."""
    for scheme in ("delayq+sentinel", "sentinel"):
        connection = Connection(f"{scheme}://a", transport=DOTTED, transport_options={"master_name": "m"})
        assert connection.transport.Channel.from_transport_options == OF_KOMBU
