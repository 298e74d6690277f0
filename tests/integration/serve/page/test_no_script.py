"""Works without JavaScript: every page and every action; only the chart is plainer, and figures stay as they are."""

from celery import Celery

from celery_ext.serve.page.rendering import BOUND
from kombu_delayq.store import DelayStore
from tests.integration.serve.page.conftest import Visit
from tests.integration.serve.page.test_queue import fill


def test_everything_works_without_a_script(app: Celery, store: DelayStore, visit: Visit) -> None:
    """From the overview through a filter and its pages to a task that is moved, and to a bulk action."""
    fill(app, BOUND + 20)
    page = visit(java_script_enabled=False).see()
    assert page.locator("[data-chart] svg.bars .due").get_attribute("d")
    page.get_by_role("link", name="Day", exact=True).click()
    page.get_by_role("rowheader", name="mail").get_by_role("link").click()
    page.get_by_label("Arguments: text").fill("kwargs.order.id=7")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("1 found").wait_for()
    page.locator("[data-tasks] a").first.click()
    page.get_by_label("Delay from now").fill("2h")
    page.get_by_role("button", name="Reschedule").click()
    page.get_by_text("Rescheduled.").wait_for()
    page.get_by_role("link", name="mail").first.click()
    page.get_by_role("link", name="Next page").click()
    page.get_by_role("button", name="Cancel all …").click()
    page.get_by_label(f"Type {BOUND + 20} to go on").fill(str(BOUND + 20))
    page.get_by_role("button", name=f"Cancel {BOUND + 20} tasks").click()
    page.get_by_role("heading", name="Done").wait_for()  # the page asks again by itself
    assert store.queues.size("mail") == 0
