"""Checks of real workers, also of a mixed fleet, and what a worker says of itself when it starts."""

import json
import re
from typing import Any

import kombu
import pytest
from celery import Celery
from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.doctor import Finding, all_checks, examine
from celery_ext.doctor.workers import Worker, ask
from celery_ext.facts import facts_of
from tests.support.commands.shell import run
from tests.support.conditions import until
from tests.support.servers.acl import users
from tests.support.workers.harness import TRANSPORT, MakeProj, Proj

pytestmark = pytest.mark.wide

__all__ = ["users"]


#: The checks that look at workers.
OF_WORKERS = ("workers", "fleet", "same-options", "worker-versions", "worker-clocks", "long-tasks")


def doctor(proj: Proj, *checks: str, code: int = 1) -> dict[str, list[dict[str, Any]]]:
    """Runs the command without an app. Returns its findings by check, but those that are well."""
    only = [part for check in checks for part in ("--only", check)]
    report = json.loads(run(proj.server, "doctor", "--json", *only, code=code).stdout)
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in report["findings"]:
        if finding["level"] != "ok" or finding["check"] == "workers":
            found.setdefault(finding["check"], []).append(finding)
    return found


@pytest.mark.journey
def test_a_mixed_fleet_is_seen(make_proj: MakeProj) -> None:
    """Beside two of ours, of which one has other options, the stock worker and its kombu are recognized."""
    proj = make_proj()
    if proj.server.slots:
        pytest.skip("not in hash slots: stock kombu reads and writes several slots in one command")
    ours = proj.worker(pool="solo")
    stock = proj.worker(pool="solo", broker_transport="")
    other = proj.worker(pool="threads", broker_transport_options={"max_delay": 300, "priority_steps": [0, 5]})
    proj.await_answers()

    def of_all() -> dict[str, list[dict[str, Any]]] | None:
        seen = doctor(proj, *OF_WORKERS)
        is_whole = "of 3 workers" in str(seen.get("fleet")) and f"{stock.node} (redis)" in str(seen["workers"])
        return seen if is_whole else None

    found = until(of_all, what="all workers answer in time") or {}
    assert f"{ours.node} (kombu-delayq " in found["workers"][0]["found"]
    assert f"{stock.node} (redis)" in found["workers"][0]["found"]
    assert f"1 of 3 workers uses the stock transport: {stock.node}" in found["fleet"][0]["found"]
    by_level = {finding["level"]: finding["found"] for finding in found["same-options"]}
    assert "the transport option priority_steps differs" in by_level["error"]
    assert f"null in {ours.node}; 300 in {other.node}" in by_level["warning"]
    assert not {"worker-clocks", "long-tasks"} & found.keys()
    assert ("worker-versions" in found) is (kombu.VERSION < (5, 7))
    with proj.connection() as connection:

        def ask_all() -> dict[str, Worker] | None:
            answers = {worker.name: worker for worker in ask(None, connection, 2.0)}
            is_whole = len(answers) == 3 and all(each.queues and each.versions for each in answers.values())
            return answers if is_whole else None

        asked = until(ask_all, what="all workers answer in time") or {}
    assert asked[stock.node].versions["kombu"] == asked[ours.node].versions["kombu"]
    assert [asked[node].ours for node in (ours.node, stock.node, other.node)] == [True, False, True]
    assert asked[stock.node].queues == ["celery"]
    assert "No such control command" not in stock.log + ours.log


def test_a_queue_of_a_stock_worker_has_a_consumer(make_proj: MakeProj) -> None:
    """Redis does not tell what it consumes, but the worker does: only the other queue is named."""
    proj = make_proj()
    if proj.server.slots:
        pytest.skip("not in hash slots: stock kombu reads and writes several slots in one command")
    proj.worker("-Q", "slow", pool="solo", broker_transport="")
    proj.await_answers()
    for queue in ("slow", "forgotten"):
        proj.send("record", countdown=0.05, queue=queue)  # nobody transfers, so both stay overdue

    def said() -> str:
        return "".join(each["found"] for each in doctor(proj, "consumers").get("consumers", ()))

    until(lambda: said().endswith("no consumer is known: forgotten"))


def test_options_of_the_app_are_compared_with_those_of_its_workers(make_proj: MakeProj) -> None:
    """A publisher that was not restarted, or has other settings, is called this process."""
    proj = make_proj(broker_transport_options={"consume": "brpop"})
    worker = proj.worker(pool="solo", broker_transport_options={})
    proj.await_answers()
    checks = [check for check in all_checks() if check.name == "same-options"]

    def found() -> Finding:
        *_, last = examine(checks, proj.app, proj.connection)
        return last

    warned = until(lambda: one if (one := found()).level == "warning" else None, what="the worker answers in time")
    assert warned is not None
    assert f'"reliable" in {worker.node}; "brpop" in this process' in warned.found


def test_without_workers_nobody_answers(proj: Proj) -> None:
    """It is a notice; what is missing then is said by other checks."""
    [found] = doctor(proj, "workers", code=0)["workers"]
    assert (found["level"], "no worker runs" in found["found"]) == ("notice", True)


def test_a_consumer_that_does_not_answer_is_named(proj: Proj) -> None:
    """A worker without remote control lives, and is no mistake."""
    worker = proj.worker(pool="solo", worker_enable_remote_control=False)
    [found] = doctor(proj, "workers")["workers"]
    assert found["level"] == "warning"
    assert f":{worker.process.pid}" in found["found"]


@pytest.mark.parametrize(("user", "expected"), [("shop", {}), ("caretaker", {"workers": "notice"})])
def test_asking_needs_the_rights_of_the_app(users: PrivateRedis, user: str, expected: dict[str, str]) -> None:
    """The user of the ACL page for workers may ask; for another one, all checks of workers are left out with a word."""
    url = f"redis://{user}:password@127.0.0.1:{users.port}/0"
    checks = [check for check in all_checks() if check.name in ("fleet", "clock")]
    found = list(examine(checks, None, lambda: Connection(url, transport=TRANSPORT), timeout_s=0.1))
    assert {finding.check: finding.level for finding in found if finding.level != "ok"} == expected
    assert "clock" in {finding.check for finding in found}


def test_the_user_of_the_app_needs_one_right_more(users: PrivateRedis) -> None:
    """With ``CONFIG GET``, as the ACL page says, no check fails."""
    with users.client() as client:
        client.execute_command("ACL", "SETUSER", "shop", "+config|get")
    url = f"redis://shop:password@127.0.0.1:{users.port}/0"
    with Celery("shop", broker=url, set_as_current=False) as app:
        app.conf.broker_transport = TRANSPORT
        found = list(examine(all_checks(), app, app.connection_for_write, timeout_s=0.1))
    assert [finding.found for finding in found if "check failed" in finding.found] == []


def test_a_full_redis_is_no_matter_of_rights(proj: Proj) -> None:
    """If workers cannot be asked for another reason than a right, nobody is sent to the page on rights."""
    client = proj.server.client()
    client.config_set("maxmemory", 1)
    try:
        [found] = doctor(proj, "workers")["workers"]
    finally:
        client.config_set("maxmemory", 0)
    assert (found["level"], found["page"]) == ("warning", "troubleshooting.md")
    assert "maxmemory" in found["found"]


def test_what_a_worker_tells_has_no_password(proj: Proj) -> None:
    """The URL of its journal is among its options, and the password may be a parameter of it."""
    pytest.importorskip("sqlalchemy", reason="the oldest versions are tested without the extra")
    options = {"journal_url": "postgresql://delayq:s3cret@localhost:1/delayq?password=s3cret&options=-cx%3D1"}
    with Connection(proj.conf["broker_url"], transport=TRANSPORT, transport_options=options) as connection:
        told = json.dumps(facts_of(connection.default_channel))
    assert "postgresql+psycopg://delayq:***@localhost:1/delayq?options=-cx%3D1&password=***" in told
    assert "s3cret" not in told


LINE = "`delayq doctor` finds"


@pytest.mark.parametrize("conf", [{}, {"broker_transport": "", "broker_transport_options": {"visibility_timeout": 30}}])
def test_a_worker_that_is_well_or_stock_says_nothing(make_proj: MakeProj, conf: dict[str, Any]) -> None:
    """The servers of the tests keep nothing on disk, which is no matter of a worker; a stock worker is not checked."""
    assert LINE not in make_proj(**conf).worker(pool="solo").log


def test_a_worker_says_in_one_line_what_is_bad(make_proj: MakeProj) -> None:
    """A visibility timeout below the lease of consumers is said once, at the level WARNING."""
    proj = make_proj(broker_transport_options={"visibility_timeout": 30})
    found = re.findall(rf".*{LINE}.*", proj.worker(pool="solo").log)
    assert len(found) == 1
    assert "WARNING" in found[0]
    assert "visibility-timeout: visibility_timeout=30 is not above consumer_ttl=60" in found[0]
