"""The ACL users of docs/reference/acl.md, with nothing more than their rights."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
import redis
from celery import Celery, chain, group
from click.testing import CliRunner, Result
from kombu import Producer
from redis.exceptions import NoPermissionError, ResponseError

import celery_ext
from celery_ext.cli import delayq
from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.job_types import JobRun
from celery_ext.waiting import by_id
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import InFlight, Offer
from tests.support.conditions import until
from tests.support.servers.acl import PAGE, denials, url_of
from tests.support.store.consuming import ME, OTHER, end_lease, fetch, land, lives, message
from tests.support.store.jobs import jobs
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.held import CONSUMERS, KEYS
from tests.support.workers.periodic import Process


@pytest.fixture
def proj_of_user(users: PrivateRedis, make_proj: MakeProj) -> Iterator[Proj]:
    """The app with the rights of the user that the page gives to workers and publishers."""
    yield make_proj(server=users, broker_url=url_of(users, "shop"), include=["chain_tasks"], chain="1s")
    assert denials(users) == [], "what a user of the page may not do"


def run(server: PrivateRedis, user: str, *command: str, stdin: str | None = None, code: int = 0) -> Result:
    """Runs a ``delayq`` command as a user."""
    done = CliRunner().invoke(delayq, ["--broker", url_of(server, user), *command], input=stdin)
    assert done.exit_code == code, done.output
    return done


@pytest.mark.journey
@pytest.mark.both_layouts
def test_an_app_with_the_rights_of_the_page(proj_of_user: Proj) -> None:
    """Workers and publishers delay, retry by a chain, cancel, revoke and purge with the rights of user shop."""
    proj = proj_of_user
    proj.worker()
    proj.await_answers()
    first = proj.send("record", 1, countdown=1, priority=5)
    chained = proj.send("notify", 1)
    far = [proj.send("record", n, countdown=3600, task_id=f"far-{n}") for n in range(4)]
    proj.send("record", 9, countdown=3600, task_id="far-0")
    assert celery_ext.cancel(proj.app, [far[0].id, first.id + "0"]) == {
        "far-0": "cancelled",
        first.id + "0": "not_delayed",
    }
    assert celery_ext.reschedule(proj.app, far[1].id, countdown=7200) == "rescheduled"
    assert [task.id for task in celery_ext.select(proj.app, queues="celery")][-1:] == ["far-1"]
    assert celery_ext.run_now(proj.app, far[2].id) == "transferred"
    far[3].revoke()
    until(lambda: celery_ext.get(proj.app, "far-3") is None)
    proj.await_runs(2, id=chained.id)
    proj.await_runs(1, id=first.id)
    proj.await_runs(1, id="far-2")
    assert proj.app.control.purge() == 1


def publish(app: Celery) -> None:
    """Publishes in each way, at once and later, with equal ids and due times."""

    def remind(number: int) -> None: ...

    task = app.task(remind, name="shop.remind", shared=False)
    chained = app.task(remind, name="shop.notify", delay_chain="1m,2m", shared=False)
    eta = datetime.now(UTC) + timedelta(hours=1)
    for options in ({}, {"countdown": 60}, {"eta": eta}, {"eta": eta, "task_id": "same"}, {"countdown": -5}):
        for number, priority in ((1, 0), (2, 9)):
            task.apply_async((number,), priority=priority, **options)
    chained.apply_async((1,), expires=3600)
    chain(task.si(1), task.si(2)).apply_async(countdown=60)
    group(task.si(1), chained.si(2)).apply_async()
    for countdown in (0, 60):
        celery_ext.send_many(app, task, [celery_ext.Call((number,)) for number in range(300)], countdown=countdown)


def test_a_publisher_with_the_rights_of_the_page(users: PrivateRedis) -> None:
    """User publisher may publish in each way; with rights that the page adds, replace what waits, and cancel."""
    app = Celery("shop", broker=url_of(users, "publisher"), set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, task_ignore_result=True, task_publish_retry=False)
    celery_ext.install(app)
    publish(app)
    assert denials(users) == []
    rights = re.findall(r"For `if_waiting` add `(.*?)`.*add these and\s`(.*?)`", PAGE.read_text("utf-8"), re.DOTALL)[0]
    users.client().execute_command("ACL", "SETUSER", "publisher", *rights[0].split())
    task = app.tasks["shop.remind"]
    for number, mode in enumerate(("keep", "replace") * 2):
        task.apply_async((number,), countdown=3600 + number, if_waiting=mode, waiting_key="one")
        calls = [celery_ext.Call((number,), task_id=f"many-{at}") for at in range(3)]
        celery_ext.send_many(app, task, calls, countdown=3600, if_waiting=mode)
    assert denials(users) == []
    users.client().execute_command("ACL", "SETUSER", "publisher", *rights[1].split())
    assert celery_ext.cancel(app, ["many-0", "same", "unknown"]) == {
        "many-0": "cancelled",
        "same": "cancelled",
        "unknown": "not_delayed",
    }
    assert denials(users) == []


@pytest.mark.skipif(not hasattr(Producer, "batch"), reason="kombu before 5.7 runs fewer commands")
def test_a_publisher_has_no_right_that_it_does_not_need(users: PrivateRedis) -> None:
    """Redis runs each command of user publisher for one that publishes in each way."""
    app = Celery("shop", broker=url_of(users, "publisher"), set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, task_ignore_result=True)
    celery_ext.install(app)
    users.client().config_resetstat()
    publish(app)
    ran = {name.removeprefix("cmdstat_") for name in users.client().info("commandstats")}
    [command] = re.findall(r"^ACL SETUSER publisher.*?```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert {right[1:] for right in re.findall(r"\+\w+", command)} - ran == set()


def test_periodic_entries_with_the_rights_of_the_page(users: PrivateRedis) -> None:
    """User shop arms entries, caretaker changes them, and status lists them."""
    with ExitStack() as cleanup:
        process = Process(cleanup, url_of(users, "shop"), "p", {"tick": {"task": "t", "schedule": 600.0}}).step()
        for user, command in (("status", "list"), ("caretaker", "pause tick"), ("caretaker", "run-now tick")):
            run(users, user, "periodic", *command.split())
        process.step()
        assert process.armed() == []
        run(users, "caretaker", "periodic", "resume", "tick")
        assert len(process.step().armed()) == 1
        process.arming.end()
    assert denials(users) == []


@pytest.mark.both_layouts
def test_the_commands_with_the_rights_of_the_page(users: PrivateRedis, make_proj: MakeProj, layout: str) -> None:
    """User caretaker may run every command that looks, changes, moves and mends, and user status that one."""
    proj = make_proj(server=users)
    for n in range(6):
        proj.send("record", n, countdown=3600, task_id=f"id-{n}")
    # The lease of the one that lives outlasts the commands.
    store = DelayStore(redis.Redis(port=users.port), KEYS, options=Options(consumer_ttl=600))
    store.client.lpush("celery", *(json.dumps(message(n)) for n in range(3)))
    lives(store, ME, OTHER, queues=("celery",))
    for name in (ME, OTHER):
        assert fetch(store, 1, "celery", name=name)
    assert land(store, InFlight("celery", 0, OTHER))
    store.consumers.leave([OTHER], "celery")
    [row] = json.loads(run(users, "status", "status", "--json").stdout)["consumers"]
    assert (row["consumer"], row["in_hand"]) == (ME, 1)
    for command in (
        "status",
        "list",
        "show id-1",
        "cancel --yes id-1",
        "reschedule --countdown 2h id-2",
        "run-now id-3",
        "count --task proj.*",
        "queues pause celery",
        "queues resume celery",
        "reschedule --task proj.record --arg 0=4 --countdown 2h --yes",
    ):
        run(users, "caretaker", *command.split())
    assert "is not known" in run(users, "caretaker", "list", "misspelled", code=1).stderr
    exported = run(users, "caretaker", "export").stdout
    run(users, "caretaker", "queues", "purge", "--yes", "celery")
    run(users, "caretaker", "import", stdin=exported)
    ready = store.client.llen("celery")
    run(users, "caretaker", "repair", "--yes")
    assert store.client.llen("celery") == ready + 2
    store.queues.note_dead_letters("undelivered")
    store.close()
    if layout == "redisson":
        for form in ("hash", "redisson"):
            run(users, "caretaker", "convert", "celery", "--to", form)
    proj.send("record", 7, queue="undelivered")
    proj.send("record", 8, queue="undelivered")
    run(users, "caretaker", "dead-letters", "list", "undelivered")
    run(users, "caretaker", "dead-letters", "replay", "undelivered", "--all", "--to-queue", "celery")
    proj.send("record", 9, queue="undelivered")
    run(users, "caretaker", "dead-letters", "drop", "undelivered", "--all", "--yes")
    assert denials(users) == []


@pytest.mark.both_layouts
def test_a_transfer_worker_with_the_rights_of_the_page(users: PrivateRedis, make_proj: MakeProj, layout: str) -> None:
    """User transfer may lead and transfer, and learns of new messages."""
    proj = make_proj(server=users)
    store = DelayStore(redis.Redis(port=users.port), KEYS)
    options = ("--broker", url_of(users, "transfer"), "-o", f"layout={layout}", "-o", "consumer_ttl=1")
    command = [sys.executable, "-m", "celery", "delayq", *options, "transfer"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: users.client().get("{delayq}:transfer"))
        for n in range(2):
            proj.send("record", n, countdown=0.5)
        until(lambda: users.client().llen("celery") == 2)
        lives(store, queues=("celery",))
        assert fetch(store, 1, "celery")
        assert land(store, InFlight("celery", 0, ME))
        end_lease(store)
        until(lambda: users.client().llen("celery") == 2 and not users.client().exists(CONSUMERS))
        process.terminate()
        _, log = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, log
    store.close()
    assert denials(users) == [], log


@contextmanager
def as_spark(users: PrivateRedis) -> Iterator[DelayStore]:
    """A store with the rights of the user that the page gives to Spark jobs that write."""
    store = DelayStore(redis.Redis(port=users.port, username="spark", password="password"), KEYS)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def store_of_spark(users: PrivateRedis) -> Iterator[DelayStore]:
    """A store of user spark."""
    with as_spark(users) as store:
        yield store


def write_jobs(store: DelayStore) -> None:
    """Does all that Spark jobs do when they write: now and later, committed and aborted."""
    store.client.ping()
    store.check_version()
    store.eviction_warning()
    for number, end in enumerate(("aborted", "committed", "committed")):  # three messages of each id
        job = JobRun(f"{number}", jobs(store).new_run(), 600_000, max_rate=1e6, max_depth=1000)
        jobs(store).begin(job, "stream")
        for due in ("", "4102444800000"):
            bodies = [(priority, body) for priority in (0, 9) for body in (f"{job.name} {due} {priority}", "")]
            offers = [Offer(f"i{priority}{due}", due, priority, body) for priority, body in bodies]
            assert jobs(store).enqueue("celery", job, offers).word == "enqueued"
        jobs(store).finish(job, end)
        found = jobs(store).find(job.name)
        assert found is not None
        assert (found.state, found.name) == (end, jobs(store).of_stream("stream"))


def test_spark_jobs_with_the_rights_of_the_page(users: PrivateRedis, store_of_spark: DelayStore) -> None:
    """User spark may run whole jobs, and cancels and replaces what waits with further rights of the page."""
    write_jobs(store_of_spark)
    assert denials(users) == []
    more = re.search(r"also cancel tasks, or have `if_waiting`, .* `([+a-z ]+)`", PAGE.read_text(encoding="utf-8"))
    assert more
    users.client().execute_command("ACL", "SETUSER", "spark", *more[1].split())
    job = JobRun("once", jobs(store_of_spark).new_run(), 600_000, if_waiting="replace")
    jobs(store_of_spark).begin(job)
    assert jobs(store_of_spark).enqueue("celery", job, [Offer("i94102444800000", "4102444800000", 9, "new")]).fresh == 1
    found = jobs(store_of_spark).find("once")
    assert found is not None
    assert found.replaced == 1
    cancelled = list(by_id.cancel(store_of_spark, ["i04102444800000", "unknown"]))
    assert [len(each.messages) for each in cancelled] == [3, 0]
    store_of_spark.client.zadd("{delayq}:cancelled", {"noted long ago": 1})
    assert [each.outcome for each in by_id.cancel(store_of_spark, ["unknown"])] == ["not_delayed"]
    assert denials(users) == []


def test_spark_jobs_have_no_right_that_they_do_not_need(users: PrivateRedis) -> None:
    """Without any one of the commands of user spark, something is denied to a job."""
    admin = users.client()
    rights = re.findall(r"^ACL SETUSER spark.*?```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[0]
    for right in set(re.findall(r"\+\w+", rights)):
        admin.flushdb()
        admin.script_flush()
        admin.execute_command("ACL", "SETUSER", "spark", right.replace("+", "-"))
        with suppress(NoPermissionError, ResponseError), as_spark(users) as store:  # none knows what the flush removed
            write_jobs(store)
        assert denials(users), right
        admin.execute_command("ACL", "SETUSER", "spark", right)
        admin.execute_command("ACL", "LOG", "RESET")
