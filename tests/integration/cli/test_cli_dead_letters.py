"""``delayq dead-letters``: what is there, and what can be done with it."""

import json
import os
import subprocess
from datetime import datetime
from typing import Any

import pytest
import redis
from kombu import Exchange, Queue

from celery_ext import run_now
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.message.once import key_of
from tests.support.commands.shell import BIN, Audit, lines, run
from tests.support.conditions import until
from tests.support.workers.chains import TASKS, messages, waiting_step
from tests.support.workers.harness import APPS, MakeProj, Proj

DEAD, BURIED = "dead", "2026-01-02T03:04:05+00:00"


def letter(identity: str, task: str = "proj.record", **reason: Any) -> bytes:
    """Makes a message as ``bury`` puts it into a list; with ``reason=None`` one that came in another way."""
    told = {
        "reason": "delay chain exhausted",
        "error": f"NotifyFailed: {identity}",
        "retries": 7,
        "exchange": "",
        "routing_key": "orders",
        "worker": "w0@host",
        "at": BURIED,
        **reason,
    }
    properties = {
        "delivery_tag": f"tag of {identity}",
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": DEAD},
        "priority": told.pop("priority", 0),
        "body_encoding": "base64",
        "correlation_id": identity,
        **({"dead_letter": told} if told["reason"] else {}),
    }
    headers = {"id": identity, "task": task, "argsrepr": f"({identity!r},)", "kwargsrepr": "{}", "retries": 0}
    kind = {"content-type": "application/json", "content-encoding": "utf-8"}
    return json.dumps({"body": "W1tdLCB7fSwge31d", **kind, "headers": headers, "properties": properties}).encode()


def bury(raw_client: redis.Redis, *letters: bytes, key: str = DEAD) -> None:
    """Puts messages into the list, the first one first, and notes the queue as one of dead letters."""
    raw_client.sadd("{delayq}:dead_letters", DEAD)
    for n in range(0, len(letters), 1000):
        raw_client.lpush(key, *letters[n : n + 1000])


def ids(raw_client: redis.Redis, key: str) -> list[str]:
    """Returns the ids of the messages in a list, the next one first; of a replayed one the id that it had before."""
    return [key_of(json.loads(each)["headers"]["id"]) for each in reversed(raw_client.lrange(key, 0, -1))]


@pytest.mark.journey
def test_a_task_that_was_buried_runs_again_with_all_its_retries(make_proj: MakeProj) -> None:
    """The command of the app finds the queue by its tasks, and a replayed task runs where and as it ran at first.

    It runs although the id that it had was revoked, and is found by that.
    """
    proj = make_proj(**TASKS)
    proj.worker("-Q", "orders", concurrency=1)
    task_id = proj.send("unchained", queue="orders", priority=6).id
    for retries in (1, 2):
        assert waiting_step(proj, task_id, retries).last_error == "NotifyFailed: no answer"
        run_now(proj.app, task_id)
    until(lambda: proj.server.client().llen("failed\x06\x166"), what="it is buried")
    [found] = [json.loads(line) for line in proj.celery("delayq", "dead-letters", "list", "--json").splitlines()]
    assert {name: found[name] for name in ("id", "task", "dead_letter_queue", "routing_key", "priority")} == {
        "id": task_id,
        "task": "proj.unchained",
        "dead_letter_queue": "failed",
        "routing_key": "orders",
        "priority": 6,
    }
    assert (found["reason"], found["error"], found["retries"]) == ("retries exhausted", "NotifyFailed: no answer", 2)
    assert found["worker"] == proj.workers[0].node
    buried_s = datetime.fromisoformat(found["at"]).timestamp()
    assert buried_s >= proj.runs(id=task_id)[-1]["at"]
    proj.app.control.revoke(task_id)
    until(lambda: f"flagged as revoked: {task_id}" in proj.workers[0].log, 30)
    assert proj.celery("delayq", "dead-letters", "replay", "--all") == "queue failed: 1 replayed (1 to orders)\n"
    again = waiting_step(proj, task_id, 1)
    assert again.id != task_id
    assert again.headers["root_id"] == task_id
    runs = [*proj.runs(id=task_id), *proj.runs(id=again.id)]
    assert [(each["retries"], each["queue"]) for each in runs] == [
        *((0, "orders"), (1, "orders"), (2, "orders"), (0, "orders"))
    ]
    assert (again.queue, again.priority) == ("orders", 6)
    assert "dead_letter" not in again.properties
    assert "failed     NotifyFailed: no answer" in proj.celery("delayq", "show", task_id)
    assert lines(proj.server, "dead-letters", "list", "failed") == []  # it had some, as Redis knows without the app


def test_list_shows_the_oldest_first_and_plain_messages_without_a_reason(
    broker: PrivateRedis, raw_client: redis.Redis
) -> None:
    """Letters of each priority come oldest first, a task that was sent there has no reason, and --limit says so."""
    bury(raw_client, letter("a"), letter("b", reason=None), letter("c", task="proj.other"))
    bury(raw_client, letter("urgent", priority=9), key=f"{DEAD}\x06\x169")
    found = lines(broker, "dead-letters", "list", DEAD)
    assert [(each["id"], each["reason"] is None, each["at"]) for each in found] == [
        ("a", False, BURIED),
        ("b", True, None),
        ("c", False, BURIED),
        ("urgent", False, BURIED),
    ]
    text = run(broker, "dead-letters", "list", DEAD, "--limit", "2").stdout
    assert text.startswith(f"queue {DEAD}: 4 dead letters\n")
    assert "NotifyFailed: a" in text
    assert text.endswith("… 2 of 4 shown\n")
    none = run(broker, "dead-letters", "list", DEAD, "--error", "zzz").stdout
    assert none == f"queue {DEAD}: 4 dead letters\n… 0 of 4 match\n"
    assert [each["id"] for each in lines(broker, "dead-letters", "list", DEAD, "--task", "proj.other")] == ["c"]
    assert [each["id"] for each in lines(broker, "dead-letters", "list", DEAD, "--task", "*.o*")] == ["c"]
    assert raw_client.llen(DEAD) == 3


def test_replay_and_drop_of_a_task_by_its_name(broker: PrivateRedis, raw_client: redis.Redis, audit: Audit) -> None:
    """Replay and drop take the letters of the tasks, errors and age that are named, with their priority, no others."""
    bury(raw_client, letter("a"), letter("b", task="proj.mail", priority=4), letter("c", task="old[er]"), letter("d"))
    stdout = run(broker, "dead-letters", "replay", DEAD, "--task", "*.mail").stdout
    assert stdout == f"queue {DEAD}: 1 replayed (1 to orders)\n"
    assert ids(raw_client, "orders\x06\x163") == ["b"]
    assert lines(broker, "dead-letters", "drop", DEAD, "--task", "old[er]", "--yes") == [
        {"id": "c", "task": "old[er]", "outcome": "dropped"}
    ]
    assert ids(raw_client, DEAD) == ["a", "d"]
    assert [each["id"] for each in lines(broker, "dead-letters", "list", DEAD, "--error", "notifyfailed: D")] == ["d"]
    assert len(lines(broker, "dead-letters", "list", DEAD, "--older-than", "1h")) == 2
    assert lines(broker, "dead-letters", "drop", DEAD, "--newer-than", "1h", "--yes", code=1) == []
    run(broker, "dead-letters", "drop", DEAD, "--task", "old[er]", "--yes", code=1)
    dropped, replayed = audit()
    assert (dropped["action"], dropped["what"]) == ("drop", {"queue": DEAD, "outcomes": {"dropped": 1}})
    assert (replayed["action"], set(replayed["what"]["outcomes"])) == ("replay", {"orders"})


def test_nothing_is_dropped_or_replayed_unasked(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """Without --yes nobody can be asked here, and without a choice or a queue there is nothing to do; exit code 2."""
    bury(raw_client, letter("a"))
    assert f"1 of queue {DEAD}, on {broker.url}?" in run(broker, "dead-letters", "drop", DEAD, "--all", code=2).stderr
    assert "Give --id, --task, --error" in run(broker, "dead-letters", "drop", DEAD, "--yes", code=2).stderr
    assert "Give --id, --task, --error" in run(broker, "dead-letters", "replay", DEAD, code=2).stderr
    assert "which queue?" in run(broker, "dead-letters", "list", code=2).stderr
    run(broker, "dead-letters", "replay", DEAD, "--all", "--to-queue", DEAD, code=2)
    for rate in ("inf", "nan", "0.01", "many"):
        said = run(broker, "dead-letters", "replay", DEAD, "--all", "--rate", rate, code=2).stderr
        assert f"'{rate}' letters a second: give a number from 0.1 on" in said
    assert ids(raw_client, DEAD) == ["a"]


def test_a_queue_that_is_not_known_is_said(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """An unknown queue of dead letters is named on stderr, the others are worked on, and the exit code is 1."""
    bury(raw_client, letter("a"), letter("b"))
    for command in (["list"], ["replay", "--all"], ["drop", "--all", "--yes"]):
        result = run(broker, "dead-letters", command[0], "nosuch", *command[1:], code=1)
        assert "queue 'nosuch' holds no dead letters, and is not known" in result.stderr
    assert len(lines(broker, "dead-letters", "list", DEAD, "nosuch", code=1)) == 2
    assert len(lines(broker, "dead-letters", "replay", DEAD, "nosuch", "--id", "a", code=1)) == 1
    assert len(lines(broker, "dead-letters", "drop", DEAD, "nosuch", "--all", "--yes", code=1)) == 1
    assert ids(raw_client, DEAD) == []
    assert run(broker, "dead-letters", "list", DEAD).stdout == f"queue {DEAD}: 0 dead letters\n"  # it has had some
    none = run(broker, "dead-letters", "drop", DEAD, "--task", "t", "--yes", "--json", code=1)
    assert (none.stdout, none.stderr) == ("", "there are no such dead letters\n")


def test_tasks_of_an_ordinary_queue_are_no_dead_letters(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """Of a queue into which nobody put dead letters nothing is listed, replayed or dropped: exit code 1."""
    bury(raw_client, letter("a"))
    bury(raw_client, *(letter(f"task-{n}", reason=None) for n in range(5)), key="orders")
    for command in (["list"], ["replay", "--all"], ["replay", "--all", "--to-queue", "x"], ["drop", "--all", "--yes"]):
        result = run(broker, "dead-letters", command[0], "orders", *command[1:], code=1)
        assert (result.stdout, "'orders' is no queue of dead letters" in result.stderr) == ("", True), result.stderr
    assert raw_client.llen("orders") == 5


def test_show_and_cancel_know_a_dead_letter(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """Of a dead letter neither command says that its chain has ended: both say what it is, with exit code 1."""
    bury(raw_client, letter("a"))
    raw_client.zadd("{delayq}:chains", {"a": 1, "": "inf"})
    assert f"a: not waiting, but a dead letter in queue '{DEAD}'" in run(broker, "show", "a", code=1).stderr
    assert "a: not waiting, but a dead letter" in run(broker, "cancel", "a", "--yes", code=1).stderr
    assert lines(broker, "cancel", "a", "b", "--yes", code=1) == [
        {"id": "a", "outcome": "dead_letter"},
        {"id": "b", "outcome": "not_delayed"},
    ]


@pytest.mark.wide
def test_a_queue_that_the_app_names_may_be_empty(proj: Proj) -> None:
    """Nothing is wrong with a queue of dead letters that has none, where the app knows of it: exit code 0."""
    assert "0 dead letters" in proj.celery("delayq", "dead-letters", "list", "celery")
    proj.celery("delayq", "dead-letters", "replay", "celery", "--all")


def test_another_queue_takes_them_where_nobody_knows_the_first_one(
    broker: PrivateRedis, raw_client: redis.Redis
) -> None:
    """A message without a reason stays, with exit code 1, until --queue says where it goes; damaged ones go as is."""
    odd = [b"no json", b"\xff\xfe", b"[1]", b'{"properties": 3}', b""]
    bury(raw_client, letter("a", reason=None), *odd, letter("b"))
    stderr = run(broker, "dead-letters", "replay", DEAD, "--all", code=1).stderr
    assert "6 stay, because nobody knows from which queue they came: give --to-queue" in stderr
    assert ids(raw_client, "orders") == ["b"]
    assert raw_client.llen(DEAD) == 6
    assert len(lines(broker, "dead-letters", "list", DEAD)) == 6
    assert "6 dead letters" in run(broker, "dead-letters", "list", DEAD).stdout
    run(broker, "dead-letters", "replay", DEAD, "--all", "--to-queue", "elsewhere")
    assert raw_client.lrange("elsewhere", 0, -2) == list(reversed(odd))
    [first] = raw_client.lrange("elsewhere", -1, -1)
    assert json.loads(first)["properties"]["delivery_info"] == {"exchange": "", "routing_key": "elsewhere"}


def test_letters_of_an_exchange_go_to_the_queue_that_is_bound_to_it(proj: Proj, raw_client: redis.Redis) -> None:
    """Direct and topic bindings lead to the queue; a letter that would go to several, or none, stays."""
    direct, topic = Exchange("direct"), Exchange("topic", type="topic")
    with proj.connection() as connection:
        for queue in (
            *(Queue("mail", direct, routing_key="m"), Queue("all", topic, routing_key="news.#")),
            Queue("sport", topic, routing_key="*.sport"),
        ):
            queue(connection.default_channel).declare()
    routes = {"a": ("direct", "m"), "b": ("topic", "news.uk"), "c": ("topic", "news.sport"), "d": ("gone", "m")}
    bury(raw_client, *(letter(each, exchange=way[0], routing_key=way[1]) for each, way in routes.items()))
    run(proj.server, "dead-letters", "replay", DEAD, "--all", code=1)
    assert (ids(raw_client, "mail"), ids(raw_client, "all"), ids(raw_client, "sport")) == (["a"], ["b"], [])
    assert ids(raw_client, DEAD) == ["c", "d"]
    [message] = messages(proj, "all")
    assert message["properties"]["delivery_info"] == {"exchange": "topic", "routing_key": "news.uk"}


@pytest.mark.wide
def test_the_command_of_an_app_that_names_no_queue_asks_for_one(make_proj: MakeProj) -> None:
    """Where an app has no dead_letter_queue and no delivery limit, the command asks for a queue, with exit code 2."""
    proj = make_proj(broker_transport_options={"delivery_limit": None})
    done = subprocess.run(
        [BIN / "celery", "-A", "proj", "delayq", "dead-letters", "list"],
        cwd=APPS,
        env={**os.environ, "PROJ_CONF": json.dumps(proj.conf)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "No task of the app has a dead_letter_queue" in done.stderr
