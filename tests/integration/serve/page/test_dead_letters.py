"""Replays and drops dead letters by clicking."""

import json

import pytest
from celery import Celery

from celery_ext.dead_letters.store import LetterStore
from celery_ext.serve.page.rendering import BOUND
from kombu_delayq.message.letter_record import DEAD_LETTER, record
from kombu_delayq.store import DelayStore
from tests.integration.serve.page.conftest import Visit
from tests.support.commands.shell import Audit
from tests.support.conditions import until


@pytest.fixture
def bury(app: Celery, store: DelayStore):
    """Puts dead letters of queue ``mail`` into the queue ``dead``."""

    def put(count: int) -> None:
        for number in range(count):
            app.send_task("shop.charge", [number], task_id=f"letter-{number}", queue="mail")
            key = store.part(LetterStore)._client.ready("mail")[0]
            message = json.loads(store.client.rpop(key))
            error = f"ValueError: no card {number}\n  in charge"
            message["properties"][DEAD_LETTER] = record(
                "retries exhausted", error, retries=3, exchange="", routing_key="mail", worker="w@host"
            )
            store.client.lpush("dead", json.dumps(message))
        store.client.sadd(store.keys.dead_letters, "dead")

    return put


def test_replay_and_drop_the_ticked(store: DelayStore, visit: Visit, bury, audit: Audit) -> None:
    """Letters show why they were buried; those that are ticked go back to their queue, or away."""
    bury(3)
    page = visit().see("dead-letters")
    page.get_by_role("link", name="dead", exact=True).click()
    page.get_by_text("ValueError: no card 1", exact=True).click()
    page.get_by_text("no card 1 in charge").wait_for()
    page.get_by_label("Tick shop.charge letter-1").check()
    page.get_by_role("button", name="Replay the ticked").click()
    page.get_by_text("1 sent back to their queues").wait_for()
    assert store.queues.stats("mail").ready == 1
    page.get_by_label("Tick shop.charge letter-0").check()
    page.get_by_role("button", name="Drop the ticked").click()
    page.get_by_text("1 dropped").wait_for()
    assert store.queues.stats("mail").ready == 1
    assert store.client.llen("dead") == 1
    assert [(line["action"], line["count"]) for line in audit()] == [("drop", 1), ("replay", 1)]


def test_letters_are_filtered_and_those_that_match_change(store: DelayStore, visit: Visit, bury) -> None:
    """A filter by task, error and age says how many match, and only these are dropped."""
    bury(12)
    page = visit().see("dead-letters/dead")
    page.get_by_label("Text in the error").fill("no card 1")
    page.get_by_label("at most so long ago").fill("1h")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_role("heading", name="3 of 12 letters").wait_for()
    page.get_by_role("button", name="Drop all 3").click()
    page.get_by_text("3 dropped").wait_for()
    assert store.client.llen("dead") == 9
    page.get_by_label("Buried longer ago than").fill("soon")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_text("The filter does not work").wait_for()


def test_letters_are_grouped_by_their_errors(store: DelayStore, visit: Visit, bury) -> None:
    """Above the letters are the kinds of errors, the most frequent first, each with a link to its letters."""
    bury(4)
    letter = json.loads(store.client.lindex("dead", 0))
    letter["properties"][DEAD_LETTER]["error"] = "KeyError: 'order'"
    store.client.lpush("dead", json.dumps(letter))
    page = visit().see("dead-letters/dead")
    rows = page.get_by_role("region", name="Letters by error").get_by_role("rowheader")
    assert rows.all_inner_texts() == ["ValueError: no card", "KeyError: 'order'"]
    page.get_by_role("link", name="KeyError").click()
    page.get_by_role("heading", name="1 of 5 letters").wait_for()
    hidden = visit(settings={"hide_arguments": True}).see("dead-letters/dead")
    hidden.get_by_role("heading", name="5 letters").wait_for()
    assert "KeyError" not in hidden.content()


def test_letters_are_replayed_at_a_pace(
    store: DelayStore, visit: Visit, bury, monkeypatch: pytest.MonkeyPatch, audit: Audit
) -> None:
    """The page sends them part by part until all have left that were there; without a script one part a click."""
    monkeypatch.setattr("celery_ext.dead_letters.served.PACED_S", 0.2)
    bury(11)
    page = visit(expected=("Failed to load resource: the server responded with a status of 422",)).see(
        "dead-letters/dead"
    )
    bury(1)
    page.get_by_label("Replay at most, a second").fill("5")
    page.get_by_role("button", name="Replay all 11").click()
    page.locator("[data-pacing]").get_by_text("after 0 of 11: Nothing changed: there are 12 letters now").wait_for()
    page.reload()
    page.get_by_label("Replay at most, a second").fill("5")
    said: list[str] = []
    page.expose_function("note", lambda text: said.append(text))
    page.evaluate(
        "new MutationObserver(() => note(document.querySelector('[data-pacing]').innerText))"
        ".observe(document.querySelector('[data-pacing]'), { childList: true, subtree: true })"
    )
    page.get_by_role("button", name="Replay all 12").click()
    until(lambda: store.queues.stats("mail").ready >= 5)
    bury(1)  # one of them fails again
    page.get_by_text("12 sent back to their queues").wait_for()
    assert any(text.startswith("5 of 12 sent back") for text in said), said
    assert (store.queues.stats("mail").ready, store.client.llen("dead")) == (12, 1)
    assert [line["count"] for line in audit()] == [2, 5, 5]

    bury(5)
    page = visit(java_script_enabled=False).see("dead-letters/dead?error=no+card&newer=1h")
    page.get_by_label("Replay at most, a second").fill("4")
    page.get_by_role("button", name="Replay all 6").click()
    page.get_by_text("Others wait for their turn").wait_for()
    assert page.get_by_label("Replay at most, a second").input_value() == "4"
    page.get_by_role("heading", name="2 of 2 letters").wait_for()
    assert page.get_by_label("Text in the error").input_value() == "no card"


def test_all_letters_need_the_number(store: DelayStore, visit: Visit, bury) -> None:
    """To replay more letters than the bound, their number has to be typed."""
    bury(BOUND + 1)
    page = visit(expected=("Failed to load resource: the server responded with a status of 422",)).see(
        "dead-letters/dead"
    )
    page.get_by_label("Type 101 to go on").fill("100")
    page.get_by_role("button", name="Replay all 101").click()
    page.get_by_role("alert").get_by_text("there are 101 letters now").wait_for()
    assert store.client.llen("dead") == 101
    page.get_by_label("Type 101 to go on").fill("101")
    page.get_by_role("button", name="Replay all 101").click()
    page.get_by_text("101 sent back to their queues").wait_for()
    assert store.queues.stats("mail").ready == 101


def test_the_overview_says_what_is_not_well(store: DelayStore, visit: Visit, bury) -> None:
    """Dead letters and a Redis that keeps nothing on disk are said; with an append-only file the second is not."""
    bury(3)
    page = visit().see()
    page.get_by_text("3 dead letters wait in “dead”").wait_for()
    page.get_by_text("keeps nothing on disk: a restart loses all that waits").wait_for()
    store.client.config_set("appendonly", "yes")
    try:
        fresh = visit().see()
        fresh.get_by_text("3 dead letters wait in “dead”").wait_for()
        assert fresh.get_by_text("keeps nothing on disk").count() == 0
    finally:
        store.client.config_set("appendonly", "no")
