"""Pages of dead letters, while letters leave and come between one page and the next."""

import re

import pytest
from starlette.testclient import TestClient

from celery_ext.demo.private_redis import PrivateRedis
from tests.integration.serve.api.conftest import MakeApi
from tests.integration.serve.api.test_queues import bury_some

WHERE = "/v1/dead-letters/dead%2Fletters"


def drop(api: TestClient, *ids: str) -> None:
    """Drops letters, all of which have to be there."""
    assert api.post(f"{WHERE}:drop", json={"ids": ids}).json()["dropped"] == len(ids)


def page(api: TestClient, cursor: str | None = None, limit: int = 2) -> tuple[list[str], str | None]:
    """Returns the ids of a page, and the next cursor."""
    query = {"limit": str(limit)} | ({"cursor": cursor} if cursor else {})
    found = api.get(WHERE, params=query).json()
    return [letter["id"] for letter in found["dead_letters"]], found["cursor"]


@pytest.mark.parametrize(("count", "limit"), [(19, 5), (250, 120)])
def test_letters_are_listed_and_dropped_page_by_page(
    make_api: MakeApi, redis_server: PrivateRedis, count: int, limit: int
) -> None:
    """Whoever drops each page before the next one comes to every letter of every priority."""
    api, names = make_api(), [f"{number}" for number in range(count)]
    bury_some(redis_server, *names[: count // 2])
    bury_some(redis_server, *names[count // 2 :], priority=9)
    dropped, cursor = list[str](), None
    while cursor or not dropped:
        ids, cursor = page(api, cursor, limit)
        drop(api, *ids)
        dropped += ids
    assert (dropped, page(api)) == (names, ([], None))


def test_the_next_page_of_a_reader_passes_over_none(
    make_api: MakeApi, redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link to the next page leads on behind the letters that were shown, though they have been dropped."""
    monkeypatch.setattr("celery_ext.dead_letters.pages.ROWS", 2)
    api, at = make_api(), "/dead-letters?name=dead%2Fletters"
    bury_some(redis_server, "1", "2", "3", "4", "5")
    shown = list[list[str]]()
    while at:
        html = api.get(at, headers={"Accept": "text/html"}).text
        shown.append(re.findall(r'name="id" value="(\d)"', html))
        drop(api, *shown[-1])
        link = re.search(r'rel="next" href="([^"]*)"', html)
        at = link[1].replace("&amp;", "&").removeprefix(".") if link else ""
    assert shown == [["1", "2"], ["3", "4"], ["5"]]
