"""Checks of what waits at a broker."""

import json
from pathlib import Path

import pytest
from celery import Celery

from celery_ext.doctor import Finding
from kombu_delayq.options import LAYOUTS
from kombu_delayq.store.consumers import http_consumer
from tests.support.conditions import until
from tests.support.examining import levels
from tests.support.examining import look as look_at
from tests.support.store.consuming import ME, end_lease, fetch, lives, message
from tests.support.workers.harness import MakeProj, Proj


def look(check: str, proj: Proj) -> list[Finding]:
    """Makes a check on the app and its broker."""
    with proj.connection() as connection:
        return look_at(check, proj.app, connection.default_channel.store)


def test_without_a_leader_waiting_messages_make_it_an_error(proj: Proj) -> None:
    """Nobody transfers: a warning while nothing waits, an error with the number of messages then."""
    assert levels(look("leader", proj)) == ["warning"]
    proj.send("record", countdown=3600)
    [found] = look("leader", proj)
    assert (found.level, "and 1 message waits" in found.found) == ("error", True)


def test_no_worker_is_to_be_started_that_would_not_transfer(make_proj: MakeProj) -> None:
    """Where the app lets no worker transfer, a transfer worker of its own has to be started."""
    [found] = look("leader", make_proj(broker_transport_options={"transfer": False}))
    assert found.do == "start `celery -A app delayq transfer`: with transfer=False no worker of the app transfers"


@pytest.mark.journey
def test_a_worker_leads_and_consumes(proj: Proj) -> None:
    """With a worker of the app nothing is found."""
    proj.worker(pool="solo")
    proj.send("record", countdown=3600)
    until(lambda: look("leader", proj) == [])  # it begins to lead a moment after it is ready
    for check in ("consumers", "queues", "in-hand", "prefixes", "layout", "journal"):
        assert look(check, proj) == [], check


@pytest.mark.wide
def test_queues_with_messages_and_no_consumer_are_named(proj: Proj) -> None:
    """A queue that a worker does not consume is named; queues that are empty, or consumed, are not.

    One that only its publisher knows, as its name is misspelled, is found by the binding that kombu has made for it.
    """
    proj.worker("-Q", "celery", pool="solo")
    proj.send("record", countdown=3600, queue="later")
    proj.app.amqp.queues.select_add("forgotten")
    proj.send("record", queue="forgotten")
    [found] = look("consumers", proj)
    assert found.level == "warning"
    assert found.found == "1 message is ready or due, and no consumer is known: forgotten"
    with Celery(broker=proj.server.url, set_as_current=False) as publisher:
        publisher.send_task("record", queue="celry")
    [found] = look("consumers", proj)
    assert found.found == "2 messages are ready or due, and no consumer is known: celry, forgotten"


@pytest.mark.wide
def test_a_worker_that_consumes_dead_letters_is_found(proj: Proj) -> None:
    """A queue into which dead letters were put is named while a worker consumes it."""
    proj.server.client().sadd("{delayq}:dead_letters", "failed", "other")
    assert look("dead-letters", proj) == []
    proj.worker("-Q", "celery,failed", pool="solo")
    [found] = until(lambda: look("dead-letters", proj))  # a lease names its queues a moment later
    assert (found.level, found.found.endswith("fail again: failed")) == ("warning", True)


def test_a_queue_that_cannot_be_read_is_an_error(proj: Proj) -> None:
    """It is named with what Redis says."""
    proj.send("record", countdown=3600, queue="damaged")
    proj.server.client().set("delayq:{damaged}:due", "x")
    [found] = look("queues", proj)
    assert (found.level, "holds a string" in found.found) == ("error", True)


@pytest.mark.parametrize(
    ("count", "said", "back"), [(1, "1 message is", "gives it back"), (2, "2 messages are", "gives them back")]
)
def test_messages_in_the_hands_of_nobody_are_found(proj: Proj, count: int, said: str, back: str) -> None:
    """A consumer that was forgotten while it held messages gives nothing back."""
    with proj.connection() as connection:
        store = connection.default_channel.store
        lives(store)
        proj.server.client().lpush("q", *(json.dumps(message(n)) for n in range(count)))
        assert len(fetch(store)) == count
        end_lease(store)
        store.consumers.leave([ME], "q")
    [found] = look("in-hand", proj)
    assert (found.level, found.found) == ("warning", f"{said} in the hands of a consumer that nobody knows")
    assert found.do == f"`delayq repair` {back}"


@pytest.mark.wide
def test_a_consumer_whose_death_would_be_noticed_late_is_named(proj: Proj) -> None:
    """One that has not subscribed to its channel is; workers, and consumers over HTTP, are not."""
    proj.worker(pool="solo")
    until(lambda: look("deaths", proj) == [])
    with proj.connection() as connection:
        store = connection.default_channel.store
        lives(store, ME, http_consumer("caller", "1-abc"), queues=("celery",))
        [found] = look("deaths", proj)
    assert (found.level, found.found.startswith("1 consumer has not subscribed")) == ("notice", True)
    assert found.found.endswith(ME)


def test_a_journal_is_looked_at(make_proj: MakeProj, tmp_path: Path) -> None:
    """Nobody promotes; and a database that is away is an error without a password, and hides no figures of Redis."""
    pytest.importorskip("sqlalchemy", reason="the oldest versions are tested without the extra")
    proj = make_proj(broker_transport_options={"journal_url": f"sqlite:///{tmp_path}/journal.db"})
    [found] = look("journal", proj)
    assert (found.level, "nobody promotes" in found.found) == ("warning", True)
    away = {"journal_url": "postgresql+psycopg://delayq:s3cret@localhost:1/delayq"}
    proj = make_proj(broker_transport_options=away)
    [found] = look("journal", proj)
    assert (found.level, "does not answer" in found.found, "s3cret" in found.found) == ("error", True, False)
    assert look("queues", proj) == []


@pytest.mark.wide
def test_messages_under_other_prefixes_are_found(make_proj: MakeProj) -> None:
    """They are a warning where nobody transfers them, and a notice where they are of another app with its workers."""
    other = make_proj(broker_transport_options={"global_keyprefix": "shop."})
    other.send("record", countdown=3600)
    proj = make_proj()
    proj.worker(pool="solo")
    until(lambda: look("leader", proj) == [])
    [found] = look("prefixes", proj)
    assert (found.level, "1 with global_keyprefix 'shop.'" in found.found) == ("warning", True)
    other.worker(pool="solo")
    until(lambda: look("leader", other) == [])
    [found] = look("prefixes", proj)
    assert (found.level, "1 with global_keyprefix 'shop.'" in found.found) == ("notice", True)
    nobody = make_proj(broker_transport_options={"global_keyprefix": "shpo."})
    assert levels(look("prefixes", nobody)) == ["warning"]  # of who may have mistyped it: nobody transfers there


@pytest.mark.parametrize(("own", "other"), [LAYOUTS, LAYOUTS[::-1]])
def test_messages_in_the_layout_of_another_app_are_a_warning(make_proj: MakeProj, own: str, other: str) -> None:
    """It counts them, names their queues and the command that moves them; what the app itself stores is no finding."""
    proj, strange = (make_proj(broker_transport_options={"layout": each}) for each in (own, other))
    proj.send("record", countdown=3600)
    assert look("layout", proj) == []
    strange.send("record", countdown=3600, queue="mails")
    strange.send("record", countdown=3600, queue="mails")
    [found] = look("layout", proj)
    assert (found.level, found.page) == ("warning", "troubleshooting.md#two-layouts")
    assert found.found.startswith(f"2 messages wait in the layout '{other}', while the app has '{own}'")
    assert found.found.endswith(": mails")
    assert f"`delayq convert QUEUE --to {own}`" in found.do
