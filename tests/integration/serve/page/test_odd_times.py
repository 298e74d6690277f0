"""Entries of the index whose score is no time, such as those that a tool has written."""

import re
from collections.abc import Callable
from math import inf

import pytest
from celery import Celery

from kombu_delayq.store import DelayStore
from tests.support.serve.running import ask


@pytest.mark.parametrize("score", [-inf, inf])
def test_an_entry_without_an_end_is_shown(
    app: Celery, store: DelayStore, serve: Callable[..., str], score: float
) -> None:
    """A score that is infinite makes no page fail, and no clock of the script count to it."""
    app.send_task("shop.remind", task_id="odd", countdown=600)
    key = store.keys.due("mail")
    [member] = store.client.zrange(key, 0, -1)
    store.client.zadd(key, {member: score})
    url = serve()
    for path in ("/", "/queues/mail", "/waiting", "/tasks/odd"):
        answer = ask(url, path, headers={"Accept": "text/html"})
        assert answer.status == 200, path
        assert not re.search('data-until="-?inf"', answer.text), path
    assert ("never" if score > 0 else "always") in ask(url, "/queues/mail", headers={"Accept": "text/html"}).text
