"""Looks at a task that waits in the journal, in a real browser."""

from pathlib import Path

from celery import Celery

from tests.integration.serve.page.conftest import Visit


def test_a_task_in_the_journal_is_seen_and_cancelled(app: Celery, visit: Visit, tmp_path: Path) -> None:
    """The table and the page of a task say that it waits in the journal, and a click cancels it there."""
    app.conf.broker_transport_options = {"journal_url": f"sqlite:///{tmp_path}/journal.db"}
    for name, countdown in (("near", 600), ("far", 9 * 86_400)):
        app.send_task("shop.remind", task_id=name, countdown=countdown)
    reader = visit()
    page = reader.see("queues/mail")
    page.get_by_text("1 in the journal").wait_for()
    rows = page.locator("[data-tasks] tbody tr")
    assert ["journal" in text for text in rows.locator(".when").all_inner_texts()] == [False, True]
    rows.filter(has_text="far").get_by_role("link").click()
    page.get_by_text("the journal", exact=True).wait_for()
    page.get_by_text("Cancel …").click()
    page.get_by_role("button", name="Cancel this task").click()
    page.get_by_text("it will never run").wait_for()
    table = reader.see("queues/mail").locator("[data-tasks] tbody")
    assert "near" in table.inner_text()
    assert "far" not in table.inner_text()
