"""The ``delayq`` lines of the pages do what they are shown for, on a broker that has what the pages speak of."""

import gzip
import json
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import redis
from celery import Celery
from click.testing import CliRunner

from celery_ext.cli import delayq
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support import ROOT
from tests.support.messages import changed_message
from tests.support.pages import blocks
from tests.support.workers.harness import TRANSPORT
from tests.support.workers.held import KEYS

HOW_TO = ROOT / "docs/how-to"
#: Each page with a line that can run here.
PAGES = (
    *(HOW_TO / f"{name}.md" for name in ("cancel", "dead-letters", "doctor", "http-api", "kubernetes", "migrate")),
    *(HOW_TO / f"{name}.md" for name in ("monitoring", "move", "outage", "redisson", "serve", "spark/write")),
    ROOT / "docs/troubleshooting.md",
)
TASK = "5f0e5c7e-7a0f-4f0c-a8a4-6a4f1f5f0f5e"
#: Queues of dead letters of the pages.
LETTERS = ("failed-notifications", "too_late", "bad-orders")
CHRISTMAS_MS = datetime(2026, 12, 25, tzinfo=UTC).timestamp() * 1000
#: What stands beside ours in a line, and is no part of Python; what does not end; what needs other servers.
LEFT_OUT = re.compile(r"\bjq\b|\btransfer\b|\bserve\b|\+cluster|\+sentinel")
#: Commands whose exit code says what they have found.
LOOKING = ("doctor", "repair --dry-run")


def command_lines(page: Path) -> Iterator[str]:
    """Yields each line with ``delayq`` of the shell blocks of a page, but for those that cannot run here."""
    for code in blocks(page, "sh"):
        for given in re.sub(r"\\\n|(?<=\|)\n", " ", code).splitlines():
            line = given.partition("  #")[0].strip()
            if re.match(r"(delayq|celery .*delayq|cat .*delayq|gunzip .*delayq) ", line) and not LEFT_OUT.search(line):
                yield line


def put_what_pages_speak_of(client: redis.Redis, raw_client: redis.Redis) -> None:
    """Empties the database, and puts tasks into three queues, and letters into those of dead letters."""
    client.flushall()
    store = DelayStore(client, KEYS)
    for queue in ("orders", "mails", "invoices"):
        for task_id, due in ((f"{TASK}" if queue == "orders" else queue, "+600000"), (f"{queue}-2", CHRISTMAS_MS)):
            body = json.dumps(message(task_id, queue, "shop.notify"))
            store.delivery.offer(queue, Offer(task_id, str(due), 0, body))
        remind = json.dumps(message(f"{queue}-3", queue, "shop.remind"))
        store.delivery.offer(queue, Offer(f"{queue}-3", "+600000", 0, remind))
        store.queues.know(queue)
    for queue in LETTERS:
        raw_client.sadd("{delayq}:dead_letters", queue)
        for task_id, task in ((TASK, "shop.notify"), ("old", "shop.old_notify")):
            why = {"reason": "delay chain exhausted", "error": "E", "retries": 7, "exchange": "", "worker": "w@h"}
            why |= {"routing_key": "orders", "at": datetime.now(UTC).isoformat()}
            raw_client.lpush(queue, json.dumps(message(task_id, queue, task, dead_letter=why)))


def message(task_id: str, queue: str, task: str, **properties: Any) -> dict[str, Any]:
    info = {"exchange": "", "routing_key": queue}
    properties |= {"delivery_tag": f"tag of {task_id}", "delivery_info": info, "priority": 0}
    arguments = b'[["order-4711"], {"user_id": 17, "customer": 7}, {}]'
    return changed_message(arguments, headers={"id": task_id, "task": task}, properties=properties)


def notify() -> None:
    """Stands for the task of the pages."""


def run_line(line: str, app: Celery, url: str, directory: Path) -> None:
    """Runs a line of a shell whose parts, between pipes, are ours or one of three known programs."""
    stream = b""
    for part in line.split("|"):
        words, given, goal = redirected(part)
        data = (directory / given).read_bytes() if given else stream
        match words:
            case ["cat", name]:
                stream = (directory / name).read_bytes()
            case ["gzip"]:
                stream = gzip.compress(data)
            case ["gunzip"]:
                stream = gzip.decompress(data)
            case _:
                stream = run_command(words, app, url, data)
        if goal:
            (directory / goal).write_bytes(stream)


def redirected(part: str) -> tuple[list[str], str, str]:
    """Returns the words of a command, and the files of its standard input and output."""
    words = shlex.split(part)
    found = {"<": "", ">": ""}
    for sign in found:
        if sign in words:
            at = words.index(sign)
            found[sign] = words[at + 1]
            del words[at : at + 2]
    return words, found["<"], found[">"]


def asks(args: list[str]) -> bool:
    """Whether a command asks before it goes on."""
    command: click.Command = delayq
    for word in args:
        command = command.commands.get(word, command) if isinstance(command, click.Group) else command
    return any("--yes" in option.opts for option in command.params)


def run_command(words: list[str], app: Celery, url: str, data: bytes) -> bytes:
    with_app = words[0] == "celery"
    args = words[words.index("delayq") + 1 :]
    for at, word in enumerate(args):
        if word in ("-b", "--broker"):
            args[at + 1] = url
    if asks(args) and "--yes" not in args:
        args.append("--yes")  # there is no terminal to ask
    done = CliRunner().invoke(
        delayq,
        args,
        obj=SimpleNamespace(app=app, no_color=False) if with_app else None,
        env={"DELAYQ_BROKER_URL": url},
        input=data,
    )
    allowed = (0, 1) if any(" ".join(args).startswith(each) for each in LOOKING) else (0,)
    assert done.exit_code in allowed, (words, done.output, done.exception)
    return done.stdout_bytes


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_lines_of_a_page_do_what_they_are_shown_for(
    page: Path,
    redis_server: PrivateRedis,
    client: redis.Redis,
    raw_client: redis.Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each line succeeds on a broker with tasks and dead letters; files that lines write stay for those that follow."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids.txt").write_text(f"{TASK}\n")
    app = Celery("app", broker=redis_server.url, set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, result_backend="cache+memory://")
    app.task(name="shop.notify", shared=False, dead_letter_queue=LETTERS[0], max_retries=3)(notify)
    lines = list(command_lines(page))
    assert lines
    put_what_pages_speak_of(client, raw_client)
    run_line("delayq export orders --output orders.jsonl", app, redis_server.url, tmp_path)
    for line in lines:
        put_what_pages_speak_of(client, raw_client)
        run_line(line, app, redis_server.url, tmp_path)
    app.close()
