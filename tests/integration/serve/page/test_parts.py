"""The page of a queue that is spread over several, in a real browser: a table of its parts."""

import pytest
from celery import Celery
from playwright.sync_api import Page

from celery_ext import Call, cancel, send_many, spread
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve import asgi
from celery_ext.serve.access.identity import OPERATING, Caller
from tests.integration.serve.page.conftest import Visit
from tests.support.conditions import until
from tests.support.serve.running import in_thread
from tests.support.servers.cluster import PrivateCluster

ORDERS = spread("orders", 8)
IDS = [f"order-{number}" for number in range(40)]


def fill(app: Celery) -> dict[str, int]:
    """Sends tasks to the queue. Returns how many wait in each part."""
    calls = [Call((), countdown=3600 + n, task_id=task_id) for n, task_id in enumerate(IDS)]
    send_many(app, "shop.remind", calls, queue="orders")
    return {part: sum(ORDERS.part_of(task_id) == part for task_id in IDS) for part in ORDERS.parts}


def delayed(page: Page) -> dict[str, int]:
    """Returns the numbers of the table, by part."""
    rows = page.get_by_role("region", name="Table of parts").locator("tbody tr")
    return {
        str(row.get_attribute("data-key")): int(row.locator("[data-label=Delayed]").inner_text()) for row in rows.all()
    }


def test_parts_on_the_nodes_of_a_cluster(visit: Visit, cluster: PrivateCluster) -> None:
    """The table has each part with its node and numbers, which change while one looks; a part has its own page."""
    app = Celery("shop", broker=cluster.url, set_as_current=False)
    app.conf.update(broker_transport_options=ORDERS.transport_options)

    @app.task(name="shop.remind", shared=False)
    def remind() -> None: ...

    with app, in_thread(asgi(app, allow_write=True, identify=lambda request: Caller("ops", OPERATING))) as url:
        expected = fill(app)
        reader = visit(url.rstrip("/") + "/")
        page = reader.see()
        page.get_by_role("link", name="orders", exact=True).first.click()
        page.get_by_role("heading", name="Parts").wait_for()
        assert delayed(page) == {"orders": 0, **expected}
        nodes = {
            str(row.get_attribute("data-key")): row.locator("[data-label=Node]").inner_text()
            for row in page.get_by_role("region", name="Table of parts").locator("tbody tr").all()
        }
        assert nodes == {part: f"127.0.0.1:{cluster.node_of(part).port}" for part in ("orders", *ORDERS.parts)}
        assert len(set(nodes.values())) == 3
        reader.check_access()

        part = ORDERS.part_of(IDS[0])
        cancel(app, [IDS[0]])
        # A page that took 10 s to come, on a busy machine, is asked for again after 100 s.
        until(lambda: delayed(page)[part] == expected[part] - 1, 150)
        page.get_by_role("link", name=part, exact=True).first.click()
        page.get_by_role("heading", name=part).wait_for()
        of_part = [task_id for task_id in IDS[1:] if ORDERS.part_of(task_id) == part]
        assert page.locator("[data-tasks] tbody tr").count() == len(of_part)
        assert page.get_by_role("region", name="Table of parts").count() == 0
        page.goto("about:blank")  # no question is left, when the server ends


@pytest.mark.parametrize("width", [1440, 360])
def test_parts_on_a_plain_server(app: Celery, visit: Visit, redis_server: PrivateRedis, width: int) -> None:
    """Where there are no nodes the table has no such column; it fits a telephone."""
    app.conf.broker_transport_options = ORDERS.transport_options
    expected = fill(app)
    reader = visit(viewport={"width": width, "height": 800})
    page = reader.see("queues/orders")
    assert delayed(page) == {"orders": 0, **expected}
    has_nodes = page.get_by_role("region", name="Table of parts").locator("[data-label=Node]").count() > 0
    assert has_nodes is redis_server.slots
    reader.check_access()
