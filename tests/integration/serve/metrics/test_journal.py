"""What metrics, the API and the page say of a journal, and of queues with limits."""

from collections.abc import Iterator

import pytest
import redis
from celery import Celery
from starlette.testclient import TestClient

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore, database
from celery_ext.serve import asgi
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from tests.support.journal.stores import DAY_MS, HOUR_MS, Promoter, journaled_store, make_journaled, offer
from tests.support.store.keyspace import PAST_MS, clock_ms, waiting
from tests.support.workers.held import KEYS

__all__ = ["journaled_store", "make_journaled"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a database that is away to come back."""
    monkeypatch.setattr(database, "AWAY_S", 0.0)


def client_of(server: PrivateRedis, journal_url: str) -> TestClient:
    """Returns a client of a server with a journal."""
    app = Celery("shop", broker=server.url, set_as_current=False, broker_transport_options={"journal_url": journal_url})
    app.conf.broker_transport = "kombu_delayq.transport:Transport"
    return TestClient(asgi(app, anonymous=True))


@pytest.fixture
def client(redis_server: PrivateRedis, journaled_store: JournaledStore, journal_url: str) -> Iterator[TestClient]:
    now_ms = clock_ms(journaled_store.client)
    journaled_store.delivery.offer("q", offer("near", now_ms + 2 * HOUR_MS), offer("far", now_ms + 9 * DAY_MS))
    Promoter(journaled_store).heartbeat()
    with client_of(redis_server, journal_url) as client:
        yield client


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
def test_metrics_tell_what_the_journal_has_and_what_redis_has_lost(
    client: TestClient, journaled_store: JournaledStore
) -> None:
    """They count its rows by state, and a loss turns one from 0 to 1 until it is restored; the page says it too."""
    found = client.get("/metrics").text.splitlines()
    assert 'delayq_journal_messages{queue="q",state="waiting"} 1' in found
    assert 'delayq_journal_messages{queue="q",state="offered"} 1' in found
    assert {"delayq_journal_up 1.0", "delayq_journal_lost 0.0", "delayq_journal_promoter_present 0.0"} <= set(found)
    assert "Redis has lost data" not in client.get("/").text
    journaled_store.client.flushall()
    assert "delayq_journal_lost 1.0" in client.get("/metrics").text.splitlines()
    Promoter(journaled_store).heartbeat()
    assert "delayq_journal_lost 1.0" in client.get("/metrics").text.splitlines()
    page = client.get("/").text
    assert "<h1>Redis has lost data" in page
    assert "about 1 task is to be restored: run <code>delayq journal restore</code>" in page
    assert "What an app with <code>journal</code> " in page


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
def test_a_queue_counts_what_only_the_journal_has(client: TestClient) -> None:
    """The API has a field for it, and the page of a queue says it beside the number of all."""
    [row] = [row for row in client.get("/v1/queues").json()["queues"] if row["queue"] == "q"]
    assert (row["delayed"], row["in_journal"]) == (2, 1)
    assert client.get("/v1/queues/q").json() == row
    assert "1 in the journal" in client.get("/queues/q").text


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
def test_a_task_says_which_tier_it_waits_in(client: TestClient) -> None:
    """The API has a field for it, and the page of a task a line."""
    assert [client.get(f"/v1/tasks/{name}").json()["tier"] for name in ("near", "far")] == ["redis", "journal"]
    assert "the journal" in client.get("/tasks/far").text
    assert "the journal" not in client.get("/tasks/near").text


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
def test_a_database_that_is_away_hides_nothing_of_redis(client: TestClient, redis_server: PrivateRedis) -> None:
    """Metrics and the overview go on and say so; what needs the journal is a 503, which does not blame Redis.

    A page says what to expect, and tries again.
    """
    with client_of(redis_server, "postgresql+psycopg://user:secret@127.0.0.1:1/db") as away:
        found = away.get("/metrics").text.splitlines()
        assert {"delayq_journal_up 0.0", "delayq_redis_up 1.0", 'delayq_delayed_messages{queue="q"} 1'} <= set(found)
        assert "The database of the journal does not answer" in away.get("/").text
        answer = away.get("/v1/tasks/near")
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:delayq:problem:journal-unavailable")
        assert "secret" not in answer.text
        away.headers["Accept"] = "text/html"
        for path in ("/queues/q", "/tasks/near"):
            answer = away.get(path)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
            assert '<h1 id="error-title">The journal does not answer</h1>' in answer.text
            assert "Redis goes on delivering what it has" in answer.text
            assert 'http-equiv="refresh"' in answer.text
            assert "secret" not in answer.text
            assert "Redis does not answer" not in answer.text
        assert away.get("/dead-letters").status_code == 200


LIMITS = Options(transfer_rate={"sms": [5, 1]}, overdue={"news": "drop"}, max_lateness=60)


def test_held_back_messages_and_late_ones_are_shown(redis_server: PrivateRedis, raw_client: redis.Redis) -> None:
    """They have the rate, how many messages it holds back and until when, and how many were dropped."""
    store = DelayStore(raw_client, KEYS, options=LIMITS)
    store.delivery.offer("sms", *(waiting(str(number), PAST_MS) for number in range(51)))
    store.delivery.offer("news", *(waiting(str(number), PAST_MS) for number in range(3)))
    for queue in ("sms", "news"):
        store.queues.know(queue)
        store.delivery.transfer(queue)
    app = Celery("shop", broker=redis_server.url, set_as_current=False)
    app.conf.broker_transport = "kombu_delayq.transport:Transport"
    with TestClient(asgi(app, anonymous=True)) as client:
        rows = {row["queue"]: row for row in client.get("/v1/queues").json()["queues"]}
        scale = client.get("/scale", params={"queue": "sms", "ahead": "4s"}).json()
        metrics = client.get("/metrics").text
        page = client.get("/queues/sms").text
        late_page = client.get("/queues/news").text
    app.close()
    assert (rows["sms"]["held_back"]["per_s"], rows["sms"]["held_back"]["burst"]) == (5, 1)
    assert rows["news"]["held_back"] is None
    assert rows["news"]["too_late"] == {"dropped": 3, "dead-lettered": 0}
    assert (scale["ready"], scale["overdue"], scale["value"]) == (1, 20, 21)
    assert 'delayq_held_back_messages{queue="sms"} 50' in metrics
    assert 'delayq_too_late_messages_total{queue="news",outcome="dropped"} 3' in metrics
    assert "held back by its rate, 50 wait, at 5/s, until about" in page
    assert "3 dropped so far" in late_page
