"""Looks at a task in a real browser, and changes it by clicking."""

import pytest
from celery import Celery

from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from tests.integration.serve.page.conftest import Visit
from tests.support.commands.shell import Audit


def waiting(store: DelayStore, queue: str = "mail") -> list[str]:
    return [message.id for message in by_id.browse(store, queue)]


def test_run_now_reschedule_and_cancel(app: Celery, store: DelayStore, visit: Visit, audit: Audit) -> None:
    """Each action is done by clicking, says what it did, and leaves a line in the audit."""
    for name in ("one", "two", "three"):
        app.send_task("shop.remind", [name], task_id=name, countdown=600)
    reader = visit()
    page = reader.see("tasks/one")
    page.get_by_role("button", name="Run now").click()
    page.get_by_text("Sent to its queue").wait_for()
    assert waiting(store) == ["two", "three"]
    assert store.queues.stats("mail").ready == 1

    page = reader.see("tasks/two")
    page.get_by_label("Delay from now").fill("2h")
    page.get_by_role("button", name="Reschedule").click()
    page.get_by_text("Rescheduled.").wait_for()
    assert 7100_000 < store.scan.browse("mail").messages[-1].due_ms - store.now_ms() <= 7200_000
    assert waiting(store) == ["three", "two"]

    page = reader.see("tasks/three")
    page.get_by_text("Cancel …").click()
    page.get_by_role("button", name="Cancel this task").click()
    page.get_by_text("it will never run").wait_for()
    assert waiting(store) == ["two"]

    assert [(line["who"], line["action"]) for line in audit()] == [
        ("ops", "cancel"),
        ("ops", "reschedule"),
        ("ops", "run"),
    ]


def test_a_task_moves_to_a_local_time(app: Celery, store: DelayStore, visit: Visit) -> None:
    """A time is typed in the zone of the browser, and a wrong delay is refused with the reason."""
    app.send_task("shop.remind", task_id="one", countdown=600)
    page = visit(timezone_id="Asia/Tokyo").see("tasks/one")
    page.get_by_label("or a time (Asia/Tokyo)").fill("2035-01-01T09:00:00")
    page.get_by_role("button", name="Reschedule").click()
    page.get_by_text("Rescheduled.").wait_for()
    assert store.scan.browse("mail").messages[0].due_ms == 2_051_222_400_000
    page.locator(".due-line", has_text="1 Jan 2035, 09:00").wait_for()  # the script writes it after the page is there


@pytest.mark.parametrize("hidden", [False, True])
def test_arguments_are_shown_or_hidden(app: Celery, visit: Visit, hidden: bool) -> None:
    """Arguments in any script are shown as they are, folded; a server that hides them shows them on no page."""
    secret = {"order": {"note": "مرحبا 🦑 <b>secret</b>"}}
    app.send_task("shop.remind", [1], secret, task_id="one", countdown=600)
    reader = visit(settings={"hide_arguments": hidden})
    for path in ("tasks/one", "queues/mail"):
        html = reader.see(path).content()
        assert ("مرحبا" in html) is not hidden
        assert ("secret" in html) is not hidden
        assert "<b>secret" not in html


def test_a_chain_shows_what_is_behind_and_ahead(app: Celery, visit: Visit) -> None:
    """The steps of a delay chain are listed: behind, the present one, and ahead."""
    app.send_task("shop.charge", task_id="one", countdown=600, retries=2, delay_chain="4m,10m*2,1h~10%")
    steps = visit().see("tasks/one").locator(".chain li")
    assert [step.get_attribute("class") for step in steps.all()] == ["behind", "here", "ahead", "ahead"]
    assert "Retry 4 will wait 1h ± 10 %" in steps.last.inner_text()


def test_a_task_that_does_not_wait(app: Celery, visit: Visit) -> None:
    """A task that has gone is said to be gone, and what one may conclude from it."""
    page = visit(expected=("Failed to load resource: the server responded with a status of 404",)).see("tasks/nobody")
    page.get_by_role("heading", name="This task does not wait").wait_for()


def test_names_and_ids_may_be_anything(app: Celery, visit: Visit) -> None:
    """Queues and ids of any characters have pages that links lead to."""
    names = ["a/b", "..", "?&#%41", "with blanks", "إشعارات 🦑", "'\"<i>"]
    for name in names:
        app.send_task("shop.remind", task_id=name, queue=name, countdown=600)
    reader = visit()
    for name in names:
        page = reader.see()
        page.get_by_role("rowheader", name=name).get_by_role("link").click()
        page.get_by_role("heading", name=name).wait_for()
        page.locator("[data-tasks] a").click()
        assert page.locator("p.mono").inner_text() == name
        page.get_by_role("button", name="Run now").click()
        page.get_by_text("Sent to its queue").wait_for()


def test_read_only_by_default(app: Celery, store: DelayStore, visit: Visit) -> None:
    """Without leave to write, nothing can be clicked, and the page says why."""
    app.send_task("shop.remind", task_id="one", countdown=600)
    reader = visit(settings={"allow_write": False, "identify": None, "anonymous": True})
    page = reader.see("tasks/one")
    for button in page.locator("main button").all():
        assert button.is_disabled()
    page.get_by_text("This server is read-only").first.wait_for()
    reader.see("queues/mail")
    assert all(button.is_disabled() for button in page.locator(".bulk button").all())
    assert waiting(store) == ["one"]
