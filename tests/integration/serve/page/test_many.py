"""Uses the page while very many messages wait. The benchmark of the page has a million, and its figures."""

import re
from collections.abc import Iterator
from time import perf_counter

import pytest
import redis
from celery import Celery

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from tests.bench.targets.transfer import fill
from tests.integration.serve.page.conftest import Visit
from tests.support.commands.shell import Audit

#: Messages of one queue, and of each of the others.
MANY, FEWER, QUEUES = 50_000, 2_000, 20

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def full_server() -> Iterator[PrivateRedis]:
    """A server with 20 queues, one of them large."""
    with PrivateRedis() as server:
        store = DelayStore(redis.Redis(port=server.port))
        for number in range(QUEUES):
            fill(store, MANY if number == 7 else FEWER, f"bench-{number:02}", first_s=60)
        yield server


@pytest.fixture
def app(full_server: PrivateRedis) -> Iterator[Celery]:
    """An app whose broker has these messages."""
    app = Celery("shop", broker=full_server.url, set_as_current=False)
    app.conf.update(broker_transport="kombu_delayq.transport:Transport", task_default_queue="bench-00")
    yield app
    app.close()


def test_many_messages_are_no_trouble(app: Celery, store: DelayStore, visit: Visit, audit: Audit) -> None:
    """First view, chart, pages, a search that is stopped, and a bulk action that is stopped, all by clicking."""
    reader = visit()
    begun = perf_counter()
    page = reader.see()
    page.locator("tbody tr").nth(QUEUES - 1).wait_for()
    assert perf_counter() - begun < 20  # on any machine, however busy; the benchmark has the sharp figure
    assert f"{MANY + FEWER * (QUEUES - 1):,} delayed tasks" in page.locator(".health").inner_text()
    page.get_by_role("rowheader", name="bench-07").get_by_role("link").click()
    page.locator(".u-over").wait_for()
    page.get_by_role("link", name="Next page").click()
    page.get_by_role("link", name="First page").wait_for()

    page.get_by_label("Arguments: text").fill("no argument has this")
    page.get_by_role("button", name="Show").click()
    page.get_by_text(re.compile(r"^0 found, [1-9][\d,]* of 50,000 searched$")).first.wait_for()
    page.get_by_role("button", name="Stop").click()
    page.locator("[data-looked]", has_text="before you stopped it").wait_for()
    page.get_by_role("link", name="Search on").wait_for()

    page.get_by_role("link", name="Clear").click()
    page.get_by_role("button", name="Run all now …").wait_for()
    page.get_by_label("New delay from now").fill("3h")
    page.get_by_role("button", name="Reschedule all …").click()
    page.get_by_label("Type 50000 to go on").fill("50000")
    page.get_by_role("button", name="Reschedule 50,000 tasks").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("heading", name=re.compile("Stopped|Done")).wait_for()
    moved = int(page.locator(".facts dd").first.inner_text().replace(",", ""))
    assert store.scan.count("bench-07", store.now_ms() + 9_000_000) == moved
    assert store.queues.size("bench-07") == MANY
    [line] = audit()[:1]
    assert (line["action"], line["count"]) == ("bulk reschedule", moved)
