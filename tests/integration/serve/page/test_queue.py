"""Filters, searches and changes the tasks of a queue in a real browser."""

import re

import pytest
from celery import Celery

from celery_ext.serve.page import queue as queue_page
from celery_ext.serve.page.rendering import BOUND
from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from tests.integration.serve.page.conftest import Visit
from tests.support.commands.shell import Audit
from tests.support.conditions import until


def fill(app: Celery, count: int, task: str = "shop.remind", spread_s: float = 3000) -> None:
    """Sends tasks that come due one after the other within the next hour."""
    with app.producer_pool.acquire(block=True) as producer:
        for number in range(count):
            app.send_task(
                task,
                [number],
                {"order": {"id": number}},
                task_id=f"{task}-{number}",
                countdown=300 + number * spread_s / count,
                producer=producer,
            )


def test_pages_of_the_table(app: Celery, store: DelayStore, visit: Visit) -> None:
    """Below what the queue has and how long its tasks waited, the table shows 50 tasks; links lead on and back."""
    fill(app, 70)
    store.figures.count_minute({"mail": {"waited:1": 9, "waited:12": 1}})
    page = visit().see("queues/mail")
    figures = page.locator(".figures").inner_text()
    assert "1.6 s" in figures
    assert "99 %: > 6 h" in figures
    rows = page.locator("[data-tasks] tbody tr")
    assert rows.count() == 50
    page.get_by_role("link", name="Next page").click()
    page.wait_for_url("**cursor**")
    assert rows.count() == 20
    page.get_by_role("link", name="First page").click()
    page.wait_for_url(lambda url: "cursor" not in url)
    assert "shop.remind-0" in rows.first.inner_text()


def test_brush_a_range(app: Celery, visit: Visit) -> None:
    """A range that is brushed on the chart filters the table, and stays marked."""
    fill(app, 60)
    page = visit().see("queues/mail")
    over = page.locator(".u-over")
    box = over.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=5)
    page.mouse.up()
    page.wait_for_url("**from=**")
    rows = page.locator("[data-tasks] tbody tr")
    # A quarter of the hour has about 60 * 900 / 3000 tasks.
    assert 15 <= rows.count() <= 21
    marked = page.locator(".u-select").bounding_box()
    assert marked is not None
    assert abs(marked["width"] - box["width"] / 4) < 25
    assert page.get_by_label("Due from").input_value() in page.url.replace("%3A", ":")


def test_search_as_a_stream(app: Celery, visit: Visit) -> None:
    """A search by task name and argument adds rows as they are found, and says how far it came."""
    fill(app, 60)
    fill(app, 40, "shop.charge")
    page = visit().see("queues/mail")
    page.get_by_label("Task name").fill("*.charge")
    page.get_by_label("Arguments: text").fill("kwargs.order.id=17")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("1 found, 100 of 100 searched").last.wait_for()
    rows = page.locator("[data-tasks] tbody tr")
    assert rows.count() == 1
    assert "stream" not in page.url
    rows.first.get_by_role("link").click()
    page.get_by_role("heading", name="shop.charge").wait_for()


def test_a_search_that_has_not_ended_says_so(app: Celery, visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that found none in its time does not say that there is none, and goes on to the end."""
    fill(app, 40)
    monkeypatch.setattr(queue_page, "LOOK_S", 0.0)
    page = visit().see("waiting?q=kwargs.order.id%3D39")
    page.get_by_role("heading", name="None found so far").wait_for()
    assert "1 of 40 searched" in page.locator(".empty").inner_text()
    page.get_by_role("link", name="Search on").click()
    page.locator("[data-looked]", has_text="1 found").wait_for()
    page.goto(page.url.partition("?")[0] + "?from=2000-01-01T00:00:00Z&to=2000-01-02T00:00:00Z&q=x")
    page.get_by_role("heading", name="No waiting task matches").wait_for()


def test_an_id_is_found_at_once(app: Celery, visit: Visit) -> None:
    """The field at the head of each page leads to a task by its id."""
    fill(app, 3)
    page = visit().see()
    page.get_by_label("Find a task by its id").fill("shop.remind-2")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="shop.remind").wait_for()


def test_a_wrong_filter_is_explained(app: Celery, visit: Visit) -> None:
    """A filter that cannot work says why, and the page stays."""
    fill(app, 3)
    page = visit().see("queues/mail?from=2035-01-01&to=2034-01-01")
    page.get_by_role("alert").get_by_text("the range is empty").wait_for()
    page.get_by_role("heading", name="mail").wait_for()


def test_a_bulk_action_asks_for_the_number(app: Celery, store: DelayStore, visit: Visit, audit: Audit) -> None:
    """Above the bound the number has to be typed; tasks that come after the count are left alone."""
    fill(app, BOUND + 5)
    fill(app, 3, "shop.charge")
    page = visit(expected=("Failed to load resource: the server responded with a status of 422",)).see(
        "queues/mail?task=shop.remind"
    )
    page.get_by_role("button", name="Cancel all …").click()
    page.get_by_text("Nothing has changed yet").wait_for()
    app.send_task("shop.remind", task_id="later", countdown=700)
    assert store.queues.size("mail") == BOUND + 9
    page.get_by_label("Type 105 to go on").fill("104")
    page.get_by_role("button", name="Cancel 105 tasks").click()
    with page.expect_response(lambda answer: answer.request.method == "GET" and answer.ok):  # it stays fresh
        page.get_by_role("alert").get_by_text("it has 105 tasks, not 104").wait_for()
    page.get_by_label("Type 105 to go on").fill("105")
    page.get_by_role("button", name="Cancel 105 tasks").click()
    page.get_by_role("heading", name="Done").wait_for()
    assert re.search(r"cancelled\s+105", page.locator("main").inner_text())
    assert sorted(message.id for message in by_id.browse(store, "mail")) == [
        "later",
        "shop.charge-0",
        "shop.charge-1",
        "shop.charge-2",
    ]
    [line] = audit()
    assert (line["who"], line["action"], line["count"]) == ("ops", "bulk cancel", 105)
    assert line["what"]["filter"]["task"] == "shop.remind"


def test_bulk_run_and_reschedule(app: Celery, store: DelayStore, visit: Visit) -> None:
    """Below the bound one click is enough: to send all that match to their queue, or to move them."""
    fill(app, 4)
    fill(app, 3, "shop.charge")
    reader = visit()
    page = reader.see("queues/mail?task=shop.remind")
    page.get_by_role("button", name="Run all now …").click()
    page.get_by_role("button", name="Run 4 tasks").click()
    page.get_by_role("heading", name="Done").wait_for()
    assert (store.queues.size("mail"), store.queues.stats("mail").ready) == (3, 4)
    page = reader.see("queues/mail")
    page.get_by_label("New delay from now").fill("3h")
    page.get_by_role("button", name="Reschedule all …").click()
    page.get_by_role("button", name="Reschedule 3 tasks").click()
    page.get_by_role("heading", name="Done").wait_for()
    assert store.scan.count("mail", store.now_ms() + 10_000_000) == 3


def test_ticked_tasks_change_at_once(app: Celery, store: DelayStore, visit: Visit, audit: Audit) -> None:
    """What is ticked is cancelled or moved, and nothing else; Enter in the field of the delay moves, and runs none."""
    fill(app, 6)
    page = visit().see("queues/mail")
    for number in (1, 3, 5):
        page.get_by_label(f"Tick shop.remind-{number}").check()
    [failed] = store.lookup.cancel(["mail"], ["shop.remind-5"])["shop.remind-5"]
    store.client.lpush("dead", failed.body or b"")
    store.queues.note_dead_letters("dead")
    page.get_by_role("button", name="Cancel ticked").click()
    page.get_by_text("2 cancelled: they will never run").wait_for()
    page.get_by_text("1 failed for good, and stay as dead letters").wait_for()
    assert sorted(message.id for message in by_id.browse(store, "mail")) == [f"shop.remind-{n}" for n in (0, 2, 4)]
    page.get_by_label("Tick shop.remind-2").check()
    page.get_by_label("New delay from now").fill("3h")
    page.keyboard.press("Enter")
    page.get_by_text("1 rescheduled.").wait_for()
    page.get_by_role("button", name="Run ticked now").click()
    page.get_by_text("Nothing changed: no task is ticked.").wait_for()
    page.get_by_label("Tick shop.remind-0").check()
    page.get_by_role("button", name="Run all now …").click()
    page.get_by_text("3 tasks").first.wait_for()  # all, whatever is ticked
    assert store.scan.count("mail", store.now_ms() + 10_000_000) == 1
    lines = [(line["who"], line["action"], line["count"], line["what"]["ids"]) for line in audit()]
    assert sorted(lines) == [
        ("ops", "cancel", 2, ["shop.remind-1", "shop.remind-3", "shop.remind-5"]),
        ("ops", "reschedule", 1, ["shop.remind-2"]),
    ]


def test_retries_of_all_queues(app: Celery, store: DelayStore, visit: Visit) -> None:
    """The search over all queues finds what waits for a retry, with its error, and changes all that it finds."""
    fill(app, 3)
    for queue in ("mail", "slow"):
        app.send_task(
            "shop.charge", queue=queue, task_id=f"in-{queue}", countdown=900, retries=2, last_error="E: no\nat"
        )
    page = visit().see("waiting")
    assert page.locator("[data-tasks] tbody tr").count() == 5
    page.get_by_label("Only retries").check()
    page.get_by_role("button", name="Show").click()
    page.locator("[data-looked]", has_text="2 found, 5 of 5 searched").wait_for()
    assert page.locator(".error").all_inner_texts() == ["E: no", "E: no"]
    page.get_by_role("button", name="Run all now …").click()
    page.get_by_text("Tasks of all queues that wait for a retry").wait_for()
    page.get_by_role("button", name="Run 2 tasks").click()
    page.get_by_role("heading", name="Done").wait_for()
    assert [store.queues.stats(queue).ready for queue in ("mail", "slow")] == [1, 1]
    assert store.queues.size("mail") == 3


def test_queues_are_filtered_by_name_and_paused(app: Celery, store: DelayStore, visit: Visit) -> None:
    """The table has the queues whose names match, 25 a page; a button pauses a queue, and the overview says so.

    Queues in trouble come first and are marked.
    """
    for number in range(60):
        app.send_task("shop.remind", queue=f"q{number:02}", countdown=900)
    page = visit().see()
    rows = page.locator("tbody").first.get_by_role("row")
    assert rows.count() == 25
    page.get_by_role("link", name="Next queues").click()
    page.wait_for_url("**first=25**")
    page.get_by_role("link", name="Next queues").click()
    page.wait_for_url("**first=50**")
    assert rows.count() == 11  # with that of the app
    page.get_by_label("Filter queues by name").fill("Q1*")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**name=Q1**")
    assert rows.count() == 10
    page.get_by_role("link", name="q17").click()
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("consumers take nothing more").wait_for()
    assert list(store.fetching.paused()) == ["q17"]
    page = visit().see()
    assert page.locator("tbody").first.get_by_role("row").first.inner_text().split()[:2] == ["q17", "paused"]
    page.get_by_text("Somebody paused “q17”").get_by_role("link", name="q17").click()
    page.get_by_role("heading", name="q17").wait_for()
    visit().see("queues/q17").get_by_role("button", name="Resume").click()
    until(lambda: not store.fetching.paused())


def test_the_log_scale_draws_any_counts(app: Celery, visit: Visit) -> None:
    """On the log scale the chart has bars and labels, however many tasks are due, from one to a million."""
    fill(app, 5)
    page = visit().see()
    page.get_by_role("button", name="Log scale").click()
    page.locator(".u-over").wait_for()
    blank = page.evaluate(
        """async () => {
            const { DueChart } = await import(new URL("static/chart.js", document.baseURI));
            const place = document.querySelector("[data-chart]"), blank = [];
            const due = JSON.parse(place.dataset.due), button = document.querySelector("[data-log] button, [data-log]");
            for (const most of [1, 3, 7, 20, 60, 99, 150, 199, 250, 700, 1e3, 5e3, 2e4, 1e5, 3e5, 1e6]) {
                place.querySelector(".uplot")?.remove();
                const chart = new DueChart(place);
                const all = due.all.map((_, at) => (at === 5 ? most : at % 7 === 1 ? 2 : 0));
                try {
                    chart.show(JSON.stringify({ ...due, all, parts: {} }));
                    chart.toggleLog(button);
                    await new Promise((done) => setTimeout(done, 0));
                    const canvas = place.querySelector("canvas");
                    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
                    if (!pixels.some((value) => value)) blank.push(most);
                } catch (error) { blank.push(`${most}: ${error.message}`); }
            }
            return blank;
        }"""
    )
    assert blank == []
