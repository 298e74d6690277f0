"""`delayq serve` and `delayq tokens`: processes of their own."""

import json
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from threading import Event
from time import sleep
from urllib.parse import quote, urlsplit

import pytest
import redis
from celery import Celery
from click.testing import CliRunner

from celery_ext import Call, send_many
from celery_ext.cli import delayq
from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis, free_port
from tests.support import ROOT
from tests.support.commands.shell import run
from tests.support.conditions import until
from tests.support.pages import blocks, commands
from tests.support.serve.http_consumers import await_look
from tests.support.serve.running import ask, connected, serving
from tests.support.servers.proxies import Proxy

PASSWORD = "geheim-4711"
#: What nginx may write to files, which is below a directory of the system by default.
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def fails(*args: str, broker: str = "redis://127.0.0.1:1/0") -> str:
    """Runs `delayq serve`, which must not start. Returns what it says."""
    done = CliRunner().invoke(delayq, ["--broker", broker, "serve", "--port", "0", *args])
    assert done.exit_code == 1, done.output
    return done.output


def test_the_server_starts_where_nobody_else_reaches_it(redis_server: PrivateRedis, tmp_path: Path) -> None:
    """Without options it serves this machine alone, shows, changes nothing, and ends with SIGTERM."""
    with serving(redis_server.url, log=tmp_path / "log") as served:
        url = served.url
        assert url.startswith("http://127.0.0.1:")
        assert ask(url, "/v1/queues").status == 200
        assert ask(url, "/", headers={"Accept": "text/html"}).text.startswith("<!doctype html>")
        assert ask(url, "/v1/tasks", "POST", body={"task": "t"}).status == 403
        assert served.end() == 0
    assert "Traceback" not in served.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_at_once(
    redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path, number: signal.Signals
) -> None:
    """Connections that wait, send half a request or take a long poll do not hold it up, and nothing is logged."""
    file, actions = str(tmp_path / "tokens"), ("--action", "consume", "--action", "enqueue", "--task", "*")
    secret = run(redis_server, "tokens", "add", "poller", "--file", file, *actions).stdout.strip()
    with serving(redis_server.url, "--allow-write", "--tokens", file, log=tmp_path / "log") as served:
        url, task = served.url, {"task": "t", "queue": "polled", "countdown": 600}
        assert ask(url, "/v1/tasks", "POST", body=task, token=secret).status == 201
        with connected(url) as idle, connected(url) as half, connected(url) as poll:
            idle.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert idle.recv(1000)
            half.sendall(b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            head = f"POST /v1/queues/polled:take?wait=60s HTTP/1.1\r\nAuthorization: Bearer {secret}\r\n"
            poll.sendall(f"{head}Content-Length: 0\r\n\r\n".encode())
            await_look(client)
            served.process.send_signal(number)
            assert served.process.wait(45) == 0  # the long poll alone would last for a minute
            assert poll.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert not re.search("ERROR|Traceback|Exception", served.text), served.text


def slowed(server: PrivateRedis, begun: Event) -> Proxy:
    """Makes a proxy that keeps each call of a script for a while, once something has begun."""

    def keep(request: bytes) -> bytes:
        if begun.is_set() and b"EVALSHA" in request:
            sleep(0.2)
        return request

    return Proxy(server.port, on_request=keep)


def test_a_bulk_action_under_way_ends_tidily(redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """SIGTERM stops it after the call of Redis that is under way, and the audit has what it has done."""
    count, file, log = 10_000, str(tmp_path / "tokens"), tmp_path / "audit"
    actions = [part for action in ("read", "cancel") for part in ("--action", action)]
    secret = run(redis_server, "tokens", "add", "boss", "--file", file, *actions).stdout.strip()
    app = Celery("shop", broker=redis_server.url, broker_transport=TRANSPORT, set_as_current=False)
    send_many(app, "t", (Call(countdown=3600) for _ in range(count)))
    app.close()
    audit, begun = {"DELAYQ_AUDIT_LOG": str(log)}, Event()
    with (
        slowed(redis_server, begun) as proxy,
        serving(proxy.url, "--allow-write", "--tokens", file, log=tmp_path / "log", env=audit) as served,
    ):
        made = ask(served.url, "/v1/bulk", "POST", body={"action": "cancel", "filter": {}}, token=secret).json
        until(lambda: ask(served.url, f"/v1/bulk/{made['id']}", token=secret).json["state"] == "counted")
        begun.set()
        ask(served.url, f"/v1/bulk/{made['id']}:start", "POST", body={"confirm": count}, token=secret)
        until(lambda: client.zcard("delayq:{celery}:due") < count)
        assert served.end() == 0
    left = client.zcard("delayq:{celery}:due")
    first, last = [json.loads(line.partition("audit: ")[2]) for line in log.read_text().splitlines()]
    assert 0 < left < count
    assert (first["count"], last["count"]) == (0, count - left)


def test_a_port_that_is_in_use_is_named(redis_server: PrivateRedis) -> None:
    """Two servers on one port: the second says so in a line."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        said = fails("--port", port, broker=redis_server.url)
    assert said == (
        f"Error: cannot listen on port {port} of 127.0.0.1: Address already in use; "
        "give another port, or 0 for any that is free\n"
    )


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--host", "0.0.0.0"], "others can reach the server"),  # noqa: S104
        (["--host", "::"], "others can reach the server"),
        (["--host", ""], "others can reach the server"),
        (["--host", "no-such-host.invalid"], "there is no address"),
        (["--allow-write"], "--allow-write needs --tokens"),
        (["--allow-write", "--trusted-proxy", "127.0.0.1"], "--allow-write needs --tokens"),
        (["--allow-write", "--trust-header", "X-User"], "needs --trusted-proxy"),
        (["--host", "0.0.0.0", "--trust-header", "X-User"], "needs --trusted-proxy"),  # noqa: S104
        (["--trust-header", "X-User", "--trusted-proxy", "10.0.0.0/99"], "10.0.0.0/99"),
        (["--trust-header", "X-User", "--trusted-proxy", "proxy"], "proxy"),
        (["--tokens", "/nowhere/tokens.json"], "No such file"),
        (["--trust-header", "X-User", "--trusted-proxy", "::1", "--host", "no-such-host.invalid"], "not known\n"),
        (["--root-path", "delayq"], "no path"),
        (["--root-path", "/<b>"], "no path"),
    ],
    ids=str,
)
def test_what_would_not_be_safe_is_refused(args: list[str], reason: str) -> None:
    """The server does not start in a way in which anybody could look or change something, and says what to give."""
    said = fails(*args)
    assert reason in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "missing"), [("serve", "starlette"), ("serve", "uvicorn"), ("transfer --metrics-port 0", "starlette")]
)
def test_without_the_extra_the_command_says_what_to_install(command: str, missing: str) -> None:
    """The command is there, and names the extra."""
    hide = f"import sys; sys.modules[{missing!r}] = None; from celery_ext.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hide, "--broker", "redis://", *command.split()], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.endswith("this needs the extra: pip install 'kombu-delayq[serve]'\n"), done.stderr
    assert done.stderr.count("\n") == 1


def test_a_wrong_password_ends_the_start(own_server: PrivateRedis) -> None:
    """What does not mend itself is told at the start, without the password."""
    own_server.client().config_set("requirepass", "another")
    said = fails(broker=f"redis://:{PASSWORD}@127.0.0.1:{own_server.port}/0")
    assert "invalid username-password pair" in said
    assert PASSWORD not in said


def test_the_server_waits_for_redis(own_server: PrivateRedis, tmp_path: Path) -> None:
    """While Redis is away each request is told so; when it is back, they work."""
    own_server.stop()
    with serving(own_server.url, log=tmp_path / "log") as served:
        answer = ask(served.url, "/v1/queues")
        assert answer.status == 503
        assert answer.headers["retry-after"]
        own_server.start()
        until(lambda: ask(served.url, "/v1/queues").status == 200)


def test_tokens_are_made_listed_and_removed(redis_server: PrivateRedis, tmp_path: Path) -> None:
    """A new token is printed once; the file and the list have no more of it than its hash, or less."""
    path = tmp_path / "tokens.json"
    file = ["--file", str(path)]
    options = [
        "--action",
        "read",
        "--action",
        "enqueue",
        "-q",
        "orders.*",
        "--task",
        "shop.*",
        "--rate",
        "5/m",
        "--expires",
        "90d",
    ]
    made = run(redis_server, "tokens", "add", "billing", *file, *options)
    secret = made.stdout.strip()
    assert re.fullmatch(r"dq_[\w-]{43}", secret)
    assert secret not in made.stderr
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "already" in run(redis_server, "tokens", "add", "billing", *file, *options, code=1).stderr
    run(redis_server, "tokens", "add", "graphs", *file, "--action", "metrics")
    listed = run(redis_server, "tokens", "list", *file).stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["NAME", "billing", "graphs"]
    assert listed[2].split() == ["graphs", "metrics", "*", "*"]
    [billing, _] = map(json.loads, run(redis_server, "tokens", "list", *file, "--json").stdout.splitlines())
    assert billing.pop("expires").startswith("20")
    assert billing == {
        "name": "billing",
        "actions": ["read", "enqueue"],
        "queues": ["orders.*"],
        "tasks": ["shop.*"],
        "rate": "5/m",
    }
    assert "nothing is removed" in run(redis_server, "tokens", "remove", "graphs", "grafs", *file, code=1).stderr
    run(redis_server, "tokens", "remove", "graphs", *file)
    assert [entry["name"] for entry in json.loads(path.read_text())["tokens"]] == ["billing"]


@pytest.mark.skipif(shutil.which("nginx") is None, reason="there is no nginx on the PATH")
def test_the_nginx_of_the_page_passes_paths_as_they_are(redis_server: PrivateRedis, tmp_path: Path) -> None:
    """Behind the block of the page an id with a slash names its own task, and none that a shorter path would name."""
    page, file = ROOT / "docs/how-to/serve.md", tmp_path / "htpasswd"
    [block] = blocks(page, "nginx")
    [options] = [words[words.index("serve") + 1 :] for words in commands(page) if "--root-path" in words]
    file.write_text("ada:{PLAIN}secret\n")
    ids = ("victim", "x/../victim", "a/b", "a//b", "100%")
    app = Celery("shop", broker=redis_server.url, broker_transport=TRANSPORT, set_as_current=False)
    for task_id in ids:
        app.send_task("shop.remind", queue="proxied", countdown=3600, task_id=task_id)
    app.close()
    with serving(redis_server.url, "--allow-write", *options, log=tmp_path / "log") as served:
        port, server = free_port(), urlsplit(served.url).port
        location = block.replace("/etc/nginx/delayq.htpasswd", str(file)).replace(":5556", f":{server}")
        temporary = " ".join(f"{name}_temp_path {tmp_path}/{name};" for name in TEMPORARY)
        conf = tmp_path / "nginx.conf"
        conf.write_text(
            f"daemon off; master_process off; pid {tmp_path}/pid; error_log stderr; events {{}}\n"
            f"http {{ access_log off; {temporary} server {{ listen 127.0.0.1:{port};\n{location} }} }}\n"
        )
        with (tmp_path / "nginx.log").open("wb") as log:
            nginx = subprocess.Popen(["nginx", "-p", tmp_path, "-c", conf], stderr=log)
        try:
            url, login = f"http://127.0.0.1:{port}/delayq", b64encode(b"ada:secret").decode()
            headers = {"Authorization": f"Basic {login}", "Host": "www.example.org", "Sec-Fetch-Site": "same-origin"}
            until(lambda: answers(url) or nginx.poll() is not None, what="nginx answers")
            for task_id in reversed(ids):
                path = f"/v1/tasks/{quote(task_id, safe='')}"
                assert ask(url, path, headers=headers).json["id"] == task_id
                assert ask(url, path, "DELETE", headers).json == {"id": task_id, "outcome": "cancelled"}
            assert ask(url, "/", headers=headers | {"Accept": "text/html"}).status == 200
        finally:
            nginx.kill()
            nginx.wait()


def answers(url: str) -> bool:
    """Whether somebody listens at a URL."""
    try:
        connected(url).close()
    except ConnectionRefusedError:
        return False
    return True
