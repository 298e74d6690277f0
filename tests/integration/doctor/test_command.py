"""``delayq doctor``, the command."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import NoPermissionError

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.doctor import all_checks
from celery_ext.doctor import command as doctor
from celery_ext.doctor.finding import Findings
from celery_ext.doctor.subject import Subject
from tests.support.commands.shell import run
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.wide


def test_the_app_and_its_broker_are_checked(proj: Proj) -> None:
    """Each check has a line, and the app's broker needs no URL; warnings and errors make the exit code 1."""
    out = proj.celery("delayq", "doctor", code=1)
    for check in all_checks():
        assert f"  {check.name} " in out
    assert "no app is given" not in out
    assert out.splitlines()[-1].startswith("1 error, 1 warning, ")


def test_a_stock_app_is_told_what_to_set(make_proj: MakeProj) -> None:
    """`celery -A app delayq doctor` works before an app is switched over, and says how."""
    out = make_proj(broker_transport="").celery("delayq", "doctor", "--quiet", "--only", "transport", code=1)
    assert "uses the stock transport 'redis'" in out
    assert '→ set broker_transport = "kombu_delayq.transport:Transport"' in out
    assert "more: delayq doctor --explain migrate#switch" in out


def test_json_has_all_findings(proj: Proj) -> None:
    """One object, with counts by level; what is well ends with 0."""
    report = json.loads(proj.celery("delayq", "doctor", "--json", "--only", "clock", "--only", "options"))
    assert (report["app"], report["bad"]) == ("proj", False)
    assert report["counts"] == {"ok": 3, "notice": 0, "warning": 0, "error": 0}
    assert [finding["check"] for finding in report["findings"]] == ["options", "broker", "clock"]
    assert set(report["findings"][0]) == {"check", "level", "found", "do", "page"}


def test_without_an_app_no_settings_are_checked(broker: PrivateRedis) -> None:
    """It says so, and how to check them."""
    out = run(broker, "doctor", code=1).stdout
    assert "so no settings are checked: celery -A app delayq doctor" in out
    assert "  transport " not in out
    assert "  clock " in out


@pytest.mark.parametrize("command", [("delayq", "-b", "{url}", "doctor"), ("-b", "{url}", "delayq", "doctor")])
def test_the_app_that_celery_makes_where_none_is_given_is_none(
    broker: PrivateRedis, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """`celery` without -A has an app all the same; with settings in a module celeryconfig it counts."""
    args = [sys.executable, "-m", "celery", *(part.format(url=broker.url) for part in command)]

    def doctor() -> str:
        return subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False).stdout

    out = doctor()
    assert "so no settings are checked" in out
    assert "  transport " not in out
    assert "  clock " in out
    (tmp_path / "celeryconfig.py").write_text("task_default_queue = 'shop'")
    assert "the app itself uses the stock transport" in doctor()


def test_a_broker_that_is_away_is_one_error() -> None:
    """The checks that need it are named, the password is not, and those of the app go on."""
    server = PrivateRedis()
    out = run(server, "-o", "socket_timeout=1", "doctor", "--json", code=1).stdout
    [error, notice] = json.loads(out)["findings"]
    assert (error["check"], error["level"]) == ("broker", "error")
    assert "eviction, persistence" in notice["found"]
    server.close()


@pytest.mark.parametrize("url", ["delayq://localhost:abc/0", "delayqs://localhost:1/0?ssl_cert_reqs=bogus"])
def test_a_url_that_cannot_be_used_is_one_error(url: str, make_proj: MakeProj) -> None:
    """The check of the URL says what is wrong with it, and nothing says it again."""
    report = json.loads(make_proj(broker_url=url).celery("delayq", "doctor", "--json", code=1))
    assert [each["check"] for each in report["findings"] if each["level"] == "error"] == ["broker-url"]
    [skipped] = [each["found"] for each in report["findings"] if each["check"] == "broker"]
    assert skipped.startswith("without a broker these were not checked: redis-version, ")


@pytest.mark.parametrize(
    ("options", "check"),
    [
        ({"transfer_rate": "many"}, "options"),
        ({"socket_timeout": "5"}, "options"),
        ({"visibility_timeout": "1h"}, "options"),
        ({"max_dleay": 3, "poll_interval": "many"}, "options"),
        ({"priority_steps": "many"}, "priorities"),
        ({"priority_steps": []}, "broker-url"),
        ({"journal_url": "nosuch://localhost/"}, "leader"),
    ],
)
def test_a_wrong_option_is_one_error(options: dict[str, Any], check: str, make_proj: MakeProj) -> None:
    """The first check that it stops says what is wrong with it, and the others are named as not checked."""
    report = json.loads(make_proj(broker_transport_options=options).celery("delayq", "doctor", "--json", code=1))
    named = [each for each in report["findings"] if each["do"] == "mend broker_transport_options"]
    assert [(each["check"], each["level"]) for each in named] == [(check, "error")]
    assert "the check failed" not in json.dumps(report)
    if check == "options":
        passed = {each["check"] for each in report["findings"] if each["level"] == "ok"}
        assert not passed & {"broker-url", "visibility-timeout", "kombu"}, "they need the options"


def test_a_module_that_cannot_be_imported_is_an_error(make_proj: MakeProj) -> None:
    """The modules of the app with its tasks are imported, as a worker does; the checks go on without."""
    report = json.loads(make_proj(include=["no_such_module"]).celery("delayq", "doctor", "--json", code=1))
    [found] = [each for each in report["findings"] if each["check"] == "app"]
    assert (found["level"], "no_such_module" in found["found"]) == ("error", True)
    assert "broker" in {each["check"] for each in report["findings"]}


def test_list_names_each_check(broker: PrivateRedis) -> None:
    """With their questions, and as JSON."""
    out = run(broker, "doctor", "--list").stdout
    assert all(f"{check.name} " in out and check.question in out for check in all_checks())
    listed = json.loads(run(broker, "doctor", "--list", "--json").stdout)
    assert [row["check"] for row in listed] == [check.name for check in all_checks()]


def test_a_check_that_fails_is_a_finding(broker: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are made all the same."""

    def fail(subject: Subject) -> Findings:
        raise LookupError("no such thing")
        yield

    def refuse(subject: Subject) -> Findings:
        raise NoPermissionError("this user has no permissions")
        yield

    looks = {"eviction": fail, "queues": refuse}
    checks = [replace(check, look=looks.get(check.name, check.look)) for check in all_checks()]
    monkeypatch.setattr(doctor, "all_checks", lambda: checks)
    out = run(broker, "doctor", "--json", code=1).stdout
    found = {finding["check"]: finding for finding in json.loads(out)["findings"]}
    assert found["eviction"]["found"] == "the check failed: LookupError: no such thing"
    assert found["eviction"]["level"] == "error"
    assert found["eviction"]["do"].startswith("mend what the error says")
    assert found["queues"]["do"].startswith("give the user the rights")
    assert found["queues"]["page"] == "reference/acl.md"
    assert found["memory"]["level"] == "ok"
