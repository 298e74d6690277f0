"""Which broker a command asks, and what it says of one that it cannot use."""

import json
import socket
import subprocess

import pytest
import redis
from click.testing import CliRunner

from celery_ext.cli import delayq
from celery_ext.demo.private_redis import PrivateRedis
from tests.support.commands.shell import BIN, run
from tests.support.store.keyspace import keys_at
from tests.support.workers.harness import MakeProj, Proj


def test_sentinel_without_the_name_of_its_master_is_told_in_words() -> None:
    """What kombu finds missing ends the command in one line."""
    result = CliRunner().invoke(delayq, ["--broker", "delayq+sentinel://127.0.0.1:1", "status"])
    assert result.exit_code == 1
    assert "'master_name' transport option must be specified" in result.output


@pytest.mark.wide
def test_a_variable_does_not_override_the_broker_of_an_app(proj: Proj, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `celery -A proj` the app's broker is asked, whatever DELAYQ_BROKER_URL says; an option goes before both."""
    monkeypatch.setenv("DELAYQ_BROKER_URL", "redis://:s3cret@127.0.0.1:1/0")
    report = json.loads(proj.celery("delayq", "status", "--json"))
    assert report["broker"] == proj.server.url
    other = proj.server.url.replace("127.0.0.1", "localhost")
    report = json.loads(proj.celery("delayq", "-b", other, "status", "--json"))
    assert report["broker"] == other


@pytest.mark.wide
def test_a_variable_names_the_broker_of_an_app_without_one(
    make_proj: MakeProj, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the app says nothing of a broker, the variable does."""
    proj = make_proj()
    monkeypatch.setenv("DELAYQ_BROKER_URL", proj.server.url)
    proj.conf["broker_url"] = None
    assert json.loads(proj.celery("delayq", "status", "--json"))["broker"] == proj.server.url


@pytest.mark.parametrize("args", [["cancel", "t"], ["cancel", "t", "u"], ["queues", "purge", "celery"], ["repair"]])
def test_a_question_names_the_broker_and_its_prefix_without_the_password(
    own_server: PrivateRedis, make_proj: MakeProj, args: list[str]
) -> None:
    """Before it removes or mends something, a command says where: also where nobody can be asked."""
    own_server.client().config_set("requirepass", "s3cret")
    url = own_server.url.replace("redis://", "redis://:s3cret@")
    options = {"global_keyprefix": "shop."}
    proj = make_proj(server=own_server, broker_url=url, broker_transport_options=options)
    proj.send("record", countdown=3600, task_id="t")
    with redis.Redis(port=own_server.port, password="s3cret") as client:
        assert client.delete(keys_at(own_server)("shop.").queues) == 1
    result = CliRunner().invoke(delayq, ["-b", url, "-o", "global_keyprefix=shop.", *args])
    assert result.exit_code == 2, result.output
    assert f" on {url.replace('s3cret', '**')} with key prefix 'shop.'? Nobody can be asked" in result.output


@pytest.mark.parametrize(
    "args",
    [
        ["status"],
        ["--broker", "redis://", "-o", "nonsense", "status"],
        ["--broker", "redis://", "-o", "socket_timeout=x", "status"],
        ["--broker", "redis://", "-o", "socket_connect_timeout=0", "status"],
        ["nonsense"],
        ["--broker", "redis://127.0.0.1:1", "import", "--queue", ""],
        ["--broker", "redis://127.0.0.1:1", "export", "--output", ""],
        ["--broker", "redis://127.0.0.1:1", "dead-letters", "replay", "letters", "--all", "--to-queue", ""],
        ["--broker", "redis://127.0.0.1:1", "journal", "restore", "--dead-letters", ""],
    ],
)
def test_what_is_not_understood_exits_with_2(args: list[str]) -> None:
    """No broker, a malformed option, an empty name, or an unknown command: exit code 2, with what to write."""
    result = CliRunner().invoke(delayq, args, env={"DELAYQ_BROKER_URL": "", "CELERY_BROKER_URL": ""})
    assert result.exit_code == 2, result.output


def test_an_option_that_is_a_text_may_look_like_a_number(make_proj: MakeProj) -> None:
    """A key prefix of digits, or one that is a text of JSON, is the same prefix that an app has."""
    proj = make_proj(broker_transport_options={"global_keyprefix": "1"})
    proj.send("record", countdown=3600, task_id="t")
    for value in ("1", '"1"'):
        assert run(proj.server, "-o", f"global_keyprefix={value}", "list", "--json").stdout.startswith('{"id": "t"')


@pytest.mark.wide
def test_a_server_that_answers_no_tls_is_given_up() -> None:
    """A port that says nothing, as a Redis without TLS does, ends the command after the time for connecting."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"rediss://127.0.0.1:{silent.getsockname()[1]}"
        args = [BIN / "delayq", "-b", url, "-o", "socket_connect_timeout=0.2", "list"]
        done = subprocess.run(args, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert done.stderr.endswith(f"Error: {url}//: Timeout connecting to server\n")


def test_who_names_an_app_is_told_how() -> None:
    """An app is named as for all commands of Celery; delayq alone takes none."""
    result = CliRunner().invoke(delayq, ["-A", "shop", "status"])
    assert result.exit_code == 2
    assert "celery -A shop delayq" in result.output


def test_a_misspelled_transport_option_is_refused_by_name(proj: Proj) -> None:
    """`-o tranfer=false` fails, and says what was meant."""
    result = run(proj.server, "-o", "tranfer=false", "status", code=1)
    assert "did you mean 'transfer'" in result.stderr
