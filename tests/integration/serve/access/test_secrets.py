"""The password of Redis and the tokens are in nothing that the server says: no page, no error, no metric, no log."""

from pathlib import Path
from urllib.parse import urlencode

import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve.access.identity import Action
from celery_ext.serve.application import routes
from tests.support.conditions import until
from tests.support.serve.running import Answer, Served, ask, connected, raw, serving, token_of, tokens_file

PASSWORD = "geheim-4711"
SECRET = "dq_of-the-sweep-0123456789"
WRONG = "dq_of-nobody-0123456789"
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
HTML = {"Accept": "text/html"}


def sweep(served: Served, *, token: str, typed: str = "") -> list[Answer]:
    """Asks every route, as a program and as a browser; ``typed`` stands in each query, where no token belongs."""
    answers = []
    for route in routes():
        path = route.path
        for parameter in route.param_convertors:
            start = path.index(f"{{{parameter}")
            path = f"{path[:start]}celery{path[path.index('}', start) + 1 :]}"
        for headers in ({}, HTML):
            body = None if route.method == "GET" else {"task": "t", "countdown": 60}
            query = urlencode({"queue": "celery", "name": "celery"} | ({"q": typed, "token": typed} if typed else {}))
            answers.append(ask(served.url, f"{path}?{query}", route.method, headers, body, token))
    return answers


def said_by(answer: Answer) -> str:
    return f"{answer.headers} {answer.text}"


def test_no_secret_is_said(own_server: PrivateRedis, tmp_path: Path) -> None:
    """Whatever is asked, and whatever fails, neither answers nor logs have the password, a token or its hash."""
    own_server.client().config_set("requirepass", PASSWORD)
    holder = token_of(SECRET, "sweeper", actions=Action)
    file = tokens_file(tmp_path / "tokens.json", holder)
    broker = f"redis://:{PASSWORD}@127.0.0.1:{own_server.port}/0"
    with serving(broker, "--allow-write", "--tokens", str(file), "-l", "DEBUG", log=tmp_path / "log") as served:
        answers = sweep(served, token=SECRET)
        assert {200, 201} <= {answer.status for answer in answers}
        assert not [answer for answer in answers if answer.status == 500]
        answers += sweep(served, token=WRONG)
        sweep(served, token=SECRET, typed=SECRET)  # the page may show what its reader typed, the log not
        sweep(served, token=WRONG, typed=SECRET)
        login = urlencode({"token": SECRET}).encode()
        session = ask(served.url, "/login", "POST", FORM, login)
        assert session.status == 303
        answers += [session, ask(served.url, "/login", "POST", FORM | HTML, urlencode({"token": WRONG}).encode())]
        cookie = {"Cookie": session.headers["set-cookie"].partition(";")[0]}
        answers += [ask(served.url, "/", headers=cookie | HTML), ask(served.url, "/v1/queues", headers=cookie)]
        nonsense = raw(served.url, f"GET /{SECRET} HTTP/1.1\r\nAuthorization: Bearer {SECRET}\r\n\r \r\n\r\n".encode())
        answers.append(Answer(400, {}, nonsense.decode()))
        answers.append(ask(served.url, f"/{SECRET}", token=WRONG))
        with connected(served.url) as half:
            half.sendall(
                f"POST /v1/tasks HTTP/1.1\r\nAuthorization: Bearer {SECRET}\r\nContent-Length: 9\r\n\r\n".encode()
            )
        # Redis says no, then is another one, then is away.
        admin = redis.Redis(port=own_server.port, password=PASSWORD)
        admin.config_set("requirepass", "another")
        admin.client_kill_filter(skipme=True, _type="normal")
        answers += [failed := ask(served.url, "/v1/queues", token=SECRET)]
        assert failed.status == 503
        file.write_text(f'{{"tokens": [{{"name": "sweeper", "sha256": "{SECRET}"}}]}}')
        answers.append(ask(served.url, "/v1/queues", token=SECRET))
        until(lambda: "stay as they were" in served.text)
        own_server.stop()
        answers += [ask(served.url, path, headers=HTML, token=SECRET) for path in ("/", "/metrics", "/healthz")]
        served.end()
    for secret in (PASSWORD, SECRET, WRONG, holder.sha256):
        assert [said_by(answer)[:500] for answer in answers if secret in said_by(answer)] == []
        lines = [line for line in served.text.splitlines() if secret in line]
        assert lines == []
