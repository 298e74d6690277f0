"""Logs in with a token, and out again; and shows a caller only what is its own."""

from pathlib import Path

from celery import Celery

from celery_ext.serve.access.identity import Action
from celery_ext.serve.access.tokens import new_secret
from kombu_delayq.store import DelayStore
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


def test_nothing_of_others_is_seen_or_changed(app: Celery, store: DelayStore, serve, tmp_path: Path) -> None:
    """A token for one queue and one task name sees no other, and its forms change no other."""
    for task in ("shop.remind", "shop.charge"):
        for queue in ("mail", "money"):
            app.send_task(task, task_id=f"{task}-{queue}", queue=queue, countdown=600)
    secret, every = new_secret(), [*Action]
    mine = token_of(secret, "ana", actions=every, queues=["mail"], tasks=["shop.remind"])
    url = serve(identify=None, tokens=tokens_file(tmp_path / "tokens", mine))

    def page(path: str) -> tuple[int, str]:
        answer = ask(url, path, headers={"Accept": "text/html"}, token=secret)
        return answer.status, answer.text

    status, text = page("/")
    assert (status, "money" in text) == (200, False)
    status, text = page("/queues/mail")
    assert (status, "shop.remind-mail" in text, "shop.charge-mail" in text) == (200, True, False)
    assert page("/queues/money")[0] == 403
    assert page("/tasks/shop.remind-mail")[0] == 200
    for hidden in ("shop.charge-mail", "shop.remind-money"):
        assert page(f"/tasks/{hidden}")[0] == 404
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for path, body, expected in (
        ("/do/cancel", "id=shop.charge-mail&queue=mail", 404),
        ("/do/run", "id=shop.remind-money&queue=mail", 404),
        ("/do/cancel", "id=nobody&queue=mail", 404),
        ("/bulk/cancel", "queue=money", 403),
        ("/bulk/cancel", "queue=mail", 403),
        ("/bulk/cancel", "queue=mail&task=shop.*", 403),
        ("/bulk/cancel", "queue=mail&task=shop.charge", 403),
        ("/bulk/cancel", "queue=mail&task=shop.remind", 303),
        ("/do/cancel", "id=shop.remind-mail&queue=mail", 303),
    ):
        assert ask(url, path, "POST", form, body.encode(), secret).status == expected, (path, body)
    left = [message.id for queue in ("mail", "money") for message in store.scan.browse(queue).messages]
    assert left == ["shop.charge-mail", "shop.remind-money", "shop.charge-money"]


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
        "/dead-letters/none?skip=many",
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
