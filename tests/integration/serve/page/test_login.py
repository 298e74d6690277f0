"""Logs in with a token, and out again; and shows a caller only what is its own."""

from pathlib import Path

from celery import Celery

from celery_ext.serve.access.identity import Action
from celery_ext.serve.access.tokens import new_secret
from tests.integration.serve.page.conftest import Visit
from tests.support.serve.running import ask, token_of, tokens_file


def test_log_in_and_out(app: Celery, visit: Visit, tmp_path: Path) -> None:
    """Whoever is not logged in types a token, and comes to the page that was asked for; until logging out."""
    app.send_task("shop.remind", task_id="one", countdown=600)
    secret = new_secret()
    tokens = tokens_file(tmp_path / "tokens", token_of(secret, "ana", actions=[Action.READ, Action.RUN]))
    reader = visit(
        settings={"identify": None, "tokens": tokens},
        expected=("Failed to load resource: the server responded with a status of 401",),
    )
    page = reader.see("tasks/one")
    page.get_by_label("Token").fill("dq_wrong")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("alert").get_by_text("not known here").wait_for()
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="shop.remind").wait_for()
    assert "You are ana" in page.locator("footer").inner_text()
    assert secret not in page.content()
    assert page.get_by_role("button", name="Cancel …").is_disabled()
    page.get_by_text("ana may not cancel here").first.wait_for()
    page.get_by_role("button", name="Run now").click()
    page.get_by_text("Sent to its queue").wait_for()
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("heading", name="Log in").wait_for()
    reader.see().get_by_role("heading", name="Log in").wait_for()


def test_nonsense_gets_a_clear_answer(serve) -> None:
    """Addresses and forms that make no sense are refused in words, and never fail in the server."""
    url = serve()
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    for path in (
        "/?span=century&sort=x.y.z",
        "/queues",
        "/queues/mail?from=yesterday",
        "/queues/mail?cursor=nonsense",
        f"/queues/mail?q={'x' * 900}",
        "/queues/%00%ff%2e",
        "/tasks",
        f"/tasks/{'x' * 5000}",
        "/dead-letters/none?cursor=many",
        "/bulk/none",
        "/static/../rendering.py",
        "/static/uplot",
    ):
        assert ask(url, path, headers={"Accept": "text/html"}).status in (200, 400, 404), path
    for path, body in (
        ("/do/run", b""),
        ("/do/run", b"id=%zz&\xff"),
        ("/do/reschedule", b"id=x&countdown=1h&eta=2030-01-01"),
        ("/do/replay", b"queue=none&all=1&confirm=0"),
        ("/bulk/run", b"queue=mail&from=never"),
        ("/bulk/reschedule", b"queue=mail"),
        ("/bulk/none/start", b"confirm=1"),
        ("/login", b"token=x"),
    ):
        answer = ask(url, path, "POST", form, body)
        assert answer.status in (303, 400, 404, 422), (path, body, answer)
