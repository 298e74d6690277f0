"""``delayq doctor`` finds what is wrong with limits, and ``delayq repair`` mends it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.doctor import Level
from celery_ext.doctor.subject import Subject
from celery_ext.limits.checks import limits
from kombu_delayq.store import Keys
from tests.support.commands.shell import Audit, lines, run
from tests.support.limits.keyed import LIMITS, QUEUE, Keyed, keyed
from tests.support.store.consuming import ME
from tests.support.workers.harness import MakeProj


@pytest.fixture
def shop(redis_server: PrivateRedis) -> Iterator[Keyed]:
    with keyed(redis_server) as made:
        made.declare()
        yield made


def found(shop: Keyed) -> list[str]:
    """Returns what the check finds, each a warning with something to do."""
    findings = list(limits(Subject(shop.app, shop.store)))
    assert all(finding.level is Level.WARNING and finding.do and finding.page for finding in findings)
    return [finding.found for finding in findings]


def repair(server: PrivateRedis, *args: str, code: int = 0) -> dict[str, Any]:
    """Returns what a repair says of limits; empty if it says nothing."""
    said = [line for line in lines(server, "repair", *args, code=code) if "places" in line]
    assert len(said) <= 1
    return said[0] if said else {}


def test_all_is_well_while_tasks_wait_and_run(redis_server: PrivateRedis, shop: Keyed) -> None:
    """Messages that wait for the turn of their key, and places in hand, are nothing to mend."""
    shop.send("account:7", "account:7", "account:8", "")
    assert len(shop.fetch(3)) == 3
    assert found(shop) == []
    assert repair(redis_server, "--dry-run") == {}
    assert repair(redis_server, "--yes") == {}
    assert shop.keys()["account:7"] == (1, 1)


def test_a_limit_that_nobody_declares_is_named(shop: Keyed) -> None:
    """Its name is found among the keys of the queue, until a worker declares it."""
    shop.send("acount:7", "acount:8", "account:7")
    shop.fetch(1)
    [said] = found(shop)
    assert "acount (orders)" in said
    shop.declare({**LIMITS, "acount": {}})
    assert found(shop) == []


def test_places_of_consumers_that_are_gone_are_given_back(
    redis_server: PrivateRedis, shop: Keyed, audit: Audit
) -> None:
    """A place whose consumer nobody knows is found, a dry run leaves it, and a repair lets the key's next task go."""
    shop.send("account:7", "account:7")
    [fetched] = shop.fetch(2)
    client, keys = shop.store.client, Keys()
    client.zrem(keys.consumers(QUEUE), ME)
    client.hdel(keys.unacked(QUEUE), fetched.tag)
    client.zrem(keys.unacked_index(QUEUE), fetched.tag)
    [said] = found(shop)
    assert said.startswith("1 place ")
    assert ME in said
    assert repair(redis_server, "--dry-run", code=1) == {"places": 1, "keys": 0, "mended": False}
    assert shop.keys()["account:7"] == (1, 1)
    assert "1 place of a key that a consumer has which is gone: given back" in run(redis_server, "repair", "-y").stdout
    assert found(shop) == []
    assert audit()[0]["what"]["outcomes"] == {"places": 1}
    assert len(shop.fetch(2)) == 1


def test_wrong_counts_are_corrected(redis_server: PrivateRedis, shop: Keyed) -> None:
    """A key that counts more running tasks than there are is found, and free after a repair."""
    shop.send("account:7", "account:7")
    [fetched] = shop.fetch(2)
    shop.store.client.hdel(Keys().places(QUEUE), fetched.tag)
    [said] = found(shop)
    assert "account:7 (orders)" in said
    assert repair(redis_server, "--dry-run", code=1) == {"places": 0, "keys": 1, "mended": False}
    assert repair(redis_server, "--yes") == {"places": 0, "keys": 1, "mended": True}
    assert found(shop) == []
    assert shop.keys()["account:7"] == (1, 0)


@pytest.mark.wide
def test_workers_that_pass_by_limits_are_named(make_proj: MakeProj) -> None:
    """Beside a worker that knows limits, one with ``consume="brpop"`` is found; alone, the first is well."""
    options = {"limits": {"account": {"running": 1}}}
    proj = make_proj(broker_transport_options=options)
    ours = proj.worker(pool="solo")
    proj.await_answers()

    def look(code: int) -> list[dict[str, Any]]:
        report = json.loads(run(proj.server, "doctor", "--json", "--only", "limits", code=code).stdout)
        return [finding for finding in report["findings"] if finding["level"] != "ok"]

    assert look(0) == []
    passing = proj.worker(pool="solo", broker_transport_options={**options, "consume": "brpop"})
    proj.await_answers()
    [finding] = look(1)
    assert passing.node in finding["found"]
    assert ours.node not in finding["found"]
