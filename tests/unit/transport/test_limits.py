"""Options that may differ from queue to queue, and those that only work together."""

from typing import Any

import pytest
from kombu.transport import redis as stock

from kombu_delayq import InvalidOptions
from kombu_delayq.options import Options, QueueLimits, parse

OF_KOMBU = stock.SentinelChannel.from_transport_options


def limits(queue: str, **given: Any) -> QueueLimits | None:
    """Returns the limits of a queue, of options that are checked first."""
    return parse(given, OF_KOMBU)[0].limits_of(queue)


def test_without_options_no_queue_has_limits() -> None:
    """By default late messages run, at any rate."""
    assert Options().limits_of("q") is None


@pytest.mark.parametrize(
    ("given", "rate", "burst"),
    [(50, 50, 50), (0.5, 0.5, 1), ([50, 200], 50, 200), ((0.1, 5), 0.1, 5), ({"q": 3, "*": 4}, 3, 3), ({"*": 4}, 4, 4)],
)
def test_a_rate_has_a_burst(given: Any, rate: float, burst: float) -> None:
    """Without a burst, the messages of a second may go at once, at least one."""
    assert limits("q", transfer_rate=given) == QueueLimits("run", None, rate, burst)


def test_a_queue_of_a_mapping_has_its_own_limits() -> None:
    """A queue that is not named has those of ``*``, or none."""
    given = {
        "overdue": {"mails": "drop", "sms": "dead-letter", "*": "run"},
        "max_lateness": {"mails": 60, "*": 3600},
        "transfer_rate": {"sms": [5, 20], "mails": None},
    }
    assert limits("mails", **given) == QueueLimits("drop", 60_000, None, 1)
    assert limits("sms", **given) == QueueLimits("dead-letter", 3_600_000, 5, 20)
    assert limits("other", **given) is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"overdue": "drop"}, "overdue='drop' needs max_lateness"),
        (
            {"overdue": {"mails": "drop"}, "max_lateness": {"sms": 5}},
            "overdue='drop' for queue 'mails' needs max_latene",
        ),
        ({"max_lateness": 60}, "max_lateness=60 has no effect, because overdue is 'run'"),
        ({"max_lateness": {"a": 60}, "overdue": {"a": "run"}}, "has no effect, because overdue is 'run'"),
        ({"overdue": {"mails": "dropp"}}, "has 'dropp' for 'mails', which is not one of 'run', 'dead-letter', 'drop'"),
        ({"overdue": {7: "drop"}}, "has 7, which is not the name of a queue, nor '*' for all others"),
        ({"transfer_rate": {"mails": [5, 0]}}, "has [5, 0] for 'mails', which is not from 1 to 1000000"),
        ({"transfer_rate": {"mails": [5]}}, "is not a number of messages a second, nor that and a burst"),
        ({"max_lateness": {"mails": "1h"}, "overdue": "drop"}, "has '1h' for 'mails', which is not a number"),
    ],
)
def test_a_mistake_is_named(given: dict[str, Any], text: str) -> None:
    """An error names the option, the queue and the value, or what is missing."""
    with pytest.raises(InvalidOptions) as error:
        parse(given, OF_KOMBU)
    assert text in str(error.value)
