"""Looks at all pages with axe-core, in light and dark, narrow and wide; and uses them with the keyboard alone."""

import pytest
from celery import Celery

from celery_ext.periodic.store import PeriodicStore
from celery_ext.serve.access.identity import Action
from kombu_delayq.store import DelayStore
from tests.integration.serve.page.conftest import Visit
from tests.integration.serve.page.test_queue import fill
from tests.support.serve.running import token_of, tokens_file

LONG = "a.very.long.name.of.a.queue.that.does.not.end-" * 3
#: What a date with its time needs, in pixels.
DATE_PX = 200
NOT_FOUND = ("Failed to load resource: the server responded with a status of 404",)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 375)])
def test_every_page_is_accessible(
    app: Celery, store: DelayStore, visit: Visit, tmp_path, scheme: str, width: int
) -> None:
    """Axe-core finds nothing, and no page is wider than its window: also with long names, when empty, and in error."""
    window = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
    reader = visit(expected=NOT_FOUND, **window)
    for path in ("", "waiting", "queues/none", "dead-letters", "tasks/none", "nowhere"):
        reader.see(path)
        reader.check_access()
    fill(app, 5)
    app.send_task(
        f"{LONG}.task",
        ["مرحبا بالعالم 🦑", {"deep": [1, {"er": ["x" * 400]}]}],
        task_id="one",
        queue=LONG,
        countdown=900,
        retries=1,
        delay_chain="4m,10m*2,1h~10%",
    )
    store.client.lpush("dead", b'{"body": "", "headers": {"task": "shop.charge", "id": "letter"}, "properties": {}}')
    store.client.sadd(store.keys.dead_letters, "dead")
    record = {"digest": "d", "task": "shop.mail.remind", "missed": "last", "is_on": True, "queues": [LONG]}
    words = "each 10 minutes of hours 8-18, Monday to Friday (Europe/Berlin)"
    of_error = {**record, "schedule": "each 5m", "error": f"NotRegistered: {LONG}"}
    store.part(PeriodicStore).write({"nightly": {**record, "schedule": words}, LONG: of_error})
    store.part(PeriodicStore).pause(["nightly"])
    pages = ("", "waiting", "queues/mail", f"queues/{LONG}", "tasks/one", "dead-letters", "dead-letters/dead")
    for path in (*pages, "periodic", "running", "limits"):
        reader.see(path)
        reader.check_access()
    page = reader.see("queues/mail")
    dates = page.locator("input[type=datetime-local]").evaluate_all("found => found.map(one => one.clientWidth)")
    assert dates
    assert min(dates) >= DATE_PX
    page.get_by_role("button", name="Cancel all …").click()
    page.get_by_text("Nothing has changed yet").wait_for()
    reader.check_access()
    tokens = tokens_file(tmp_path / "tokens", token_of("dq_x" * 11, actions=[Action.READ]))
    asked = visit(settings={"identify": None, "tokens": tokens}, **window)
    asked.see("queues/mail").get_by_role("heading", name="Log in").wait_for()
    asked.check_access()


def test_with_the_keyboard_alone(app: Celery, store: DelayStore, visit: Visit) -> None:
    """Tab and Enter lead from the overview to a queue, through the filter to a task, and cancel it; focus shows."""
    fill(app, 5)
    page = visit().see()

    def tab_to(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            focused = page.evaluate(
                "(() => { const e = document.activeElement;"
                " return [e.labels?.[0]?.innerText || e.getAttribute('aria-label') || e.innerText || '',"
                " getComputedStyle(e).outlineStyle] })()"
            )
            if focused[0].strip().startswith(name):
                assert focused[1] != "none"
                return
        raise AssertionError(f"no Tab leads to {name}")

    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skips to the content
    tab_to("mail")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="mail").wait_for()
    tab_to("Task name")
    page.keyboard.type("shop.remind")
    page.keyboard.press("Enter")
    page.get_by_text("5 found").last.wait_for()
    tab_to("shop.remind")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="shop.remind").wait_for()
    tab_to("Cancel …")
    page.keyboard.press("Enter")
    tab_to("Cancel this task")
    page.keyboard.press("Enter")
    page.get_by_text("it will never run").wait_for()
    assert store.queues.size("mail") == 4


def test_the_theme_is_kept(visit: Visit) -> None:
    """The switch goes from the system's theme to light and dark, and the next page has the same."""
    reader = visit(color_scheme="light")
    page = reader.see()
    dark = "getComputedStyle(document.body).backgroundColor === 'rgb(15, 19, 18)'"
    assert not page.evaluate(dark)
    page.get_by_role("button", name="Theme: Auto").click()
    page.get_by_role("button", name="Theme: Light").click()
    assert page.evaluate(dark)
    assert reader.see("dead-letters").evaluate(dark)
    page.get_by_role("button", name="Theme: Dark").click()
    assert not reader.see().evaluate(dark)
