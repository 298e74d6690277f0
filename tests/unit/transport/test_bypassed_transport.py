"""A worker does not start where kombu would overlook ``broker_transport``; our schemes replace the stock ones."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from celery_ext.worker.bootstrap import refuse_bypassed_transport
from kombu_delayq import urls

DOTTED = "kombu_delayq.transport:Transport"


def _start(url: Any, transport: str | None = DOTTED) -> None:
    app = Celery(set_as_current=False)
    app.conf.update(broker_url=url, broker_transport=transport)
    refuse_bypassed_transport(SimpleNamespace(app=app))


@pytest.mark.parametrize(
    "url",
    [
        "redis+socket://:s3cret@/run/redis.sock",
        ["redis+socket://:s3cret@/run/redis.sock"],
        "redis://a; redis+socket://:s3cret@/run/redis.sock",
        ["redis://a", "Redis+Socket://:s3cret@/run/redis.sock"],
    ],
)
def test_bypassing_url_ends_the_worker(url: Any) -> None:
    """A URL, also one of a list, that makes kombu overlook the transport ends the worker, its password unsaid."""
    with pytest.raises(SystemExit, match=r"write delayq\+socket://") as error:
        _start(url)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "transport"),
    [
        ("redis+socket:///run/redis.sock", None),
        ("delayq+socket:///run/redis.sock", DOTTED),
        ("delayq+sentinel://a;delayq+sentinel://b", DOTTED),
        (["delayq+sentinel://a", "delayq+sentinel://b"], DOTTED),
        ("redis://:a+b@c:6379", DOTTED),
        (["redis://a", "redis://b"], DOTTED),
    ],
)
def test_other_url_lets_the_worker_start(url: Any, transport: str | None) -> None:
    """Stock apps, and URLs that lead to our transport, start."""
    _start(url, transport)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("redis://a/1", "delayq://a/1"),
        ("rediss://a;REDISS://b", "rediss://a;rediss://b"),
        (["sentinel://a", "sentinel://b"], "delayq+sentinel://a;delayq+sentinel://b"),
        ("redis+socket:///run/redis.sock", "delayq+socket:///run/redis.sock"),
        ("delayqs://a; delayqs://b", "delayqs://a;delayqs://b"),
        ("amqp://a", "amqp://a"),
        ("a", "a"),
    ],
)
def test_stock_schemes_become_ours(given: Any, expected: str) -> None:
    """The commands read stock URLs, one or a list, as ours of the same meaning, and leave others as they are."""
    assert urls.ours(given) == expected
