"""Keeps the figures fresh, without moving anything, and says when it cannot."""

from celery import Celery

from tests.integration.serve.page.conftest import Visit
from tests.integration.serve.page.test_queue import fill

UNREACHABLE = ("Failed to load resource: net::ERR",)


def test_figures_stay_fresh(app: Celery, visit: Visit) -> None:
    """New tasks and new queues appear by themselves, the focus stays where it is, and nothing shifts."""
    fill(app, 5)
    page = visit().see()
    link = page.get_by_role("rowheader", name="mail").get_by_role("link")
    link.focus()
    page.evaluate(
        "window.shifts = 0; new PerformanceObserver((list) => list.getEntries().forEach("
        "(entry) => { window.shifts += entry.value; })).observe({ type: 'layout-shift' })"
    )
    fill(app, 5, "shop.charge")
    page.locator('tr[data-key="mail"] [data-label="Delayed"]', has_text="10").wait_for()
    assert page.evaluate("window.shifts") < 0.01
    app.send_task("shop.remind", queue="another", countdown=600)
    page.get_by_role("rowheader", name="another").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "mail"
    assert "updated" in page.locator("[data-live]").inner_text()


def test_a_lost_connection_shows(app: Celery, visit: Visit) -> None:
    """Without the server the page says that its figures are old, and again when they are fresh."""
    fill(app, 5)
    reader = visit(expected=UNREACHABLE)
    page = reader.see()
    page.route("**/*", lambda route: route.abort())
    page.get_by_text("connection lost", exact=True).wait_for()
    page.unroute("**/*")
    page.get_by_text("updated").wait_for()


def test_a_hidden_page_does_not_ask(app: Celery, visit: Visit) -> None:
    """A page in a hidden tab asks nothing, and asks at once when it is seen again."""
    fill(app, 5)
    page = visit().see()
    page.evaluate(
        "Object.defineProperty(document, 'hidden', { get: () => window.isHidden, configurable: true });"
        "window.show = (seen) => { window.isHidden = !seen; document.dispatchEvent(new Event('visibilitychange')); }"
    )
    # At once, for the answer to a question from before may follow.
    assert page.evaluate("show(false) ?? document.querySelector('[data-live]').innerText") == "paused"
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)  # longer than from question to question
    assert not asked
    with page.expect_request(lambda request: True):
        page.evaluate("show(true)")
    page.get_by_text("updated").wait_for()
