"""Pages of dead letters, while letters leave and come between one page and the next."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store.dead_letters import DeadLetters
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


def rest(api: TestClient, cursor: str | None) -> Iterator[str]:
    """Yields the ids of all pages from a cursor on."""
    while cursor:
        ids, cursor = page(api, cursor)
        yield from ids


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


def test_new_letters_come_last(make_api: MakeApi, redis_server: PrivateRedis) -> None:
    """Letters that are buried between two pages change nothing of these, also if others leave; they come at the end."""
    api = make_api()
    bury_some(redis_server, "1", "2", "3", "4", "5")
    ids, cursor = page(api)
    bury_some(redis_server, "6", "7", "8")
    assert (ids, [*rest(api, cursor)]) == (["1", "2"], ["3", "4", "5", "6", "7", "8"])
    drop(api, "1", "7")
    assert [*rest(api, cursor)] == ["3", "4", "5", "6", "8"]


def test_no_letter_is_passed_over_when_that_of_the_cursor_has_gone(
    make_api: MakeApi, redis_server: PrivateRedis
) -> None:
    """The letters of its priority are listed anew, those of a more urgent one are not."""
    api = make_api()
    bury_some(redis_server, "urgent")
    bury_some(redis_server, "1", "2", "3", "4", "5", priority=9)
    ids, cursor = page(api)
    drop(api, "urgent", "2")
    assert (ids, [*rest(api, cursor)]) == (["urgent", "1"], ["1", "3", "4", "5"])
    assert api.get(WHERE, params={"cursor": "2"}).status_code == 400


@pytest.mark.parametrize("dropped", [range(30), range(150, 230), range(200)])
def test_a_large_page_passes_over_none_while_others_are_dropped(
    make_api: MakeApi, redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, dropped: range
) -> None:
    """Older letters may leave, the one read last and all before it, too, while a page is read in several calls."""
    api, client, read, reads = make_api(), redis_server.client(), DeadLetters.page, list[int]()
    names = [f"{number}" for number in range(400)]
    bury_some(redis_server, *names)
    bodies = client.lrange("dead/letters", 0, -1)[::-1]

    def page_and_drop(*args: Any) -> list[bytes]:
        found = read(*args)
        reads.append(len(found))
        if len(reads) == 2:
            for number in dropped:
                client.lrem("dead/letters", 1, bodies[number])
        return found

    monkeypatch.setattr(DeadLetters, "page", page_and_drop)
    ids, cursor = page(api, limit=300)
    listed = [*ids, *rest(api, cursor)]
    assert listed == [name for name in names if int(name) < 200 or int(name) not in dropped]


def test_the_next_page_of_a_reader_passes_over_none(
    make_api: MakeApi, redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link to the next page leads on behind the letters that were shown, though they have been dropped."""
    monkeypatch.setattr("celery_ext.serve.page.dead_letters.ROWS", 2)
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
