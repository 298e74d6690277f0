"""Which key a call has, in each way to make one, on a broker in memory."""

import json
from base64 import b64decode
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.exceptions import Retry

from celery_ext import install
from celery_ext.delays.install import problems
from celery_ext.limits import LIMIT_HEADER
from kombu_delayq import InvalidLimit
from kombu_delayq.hooks import check_unread
from tests.support.messages import published


@pytest.fixture(params=[False, True], ids=["celery", "fast"])
def installed(app: Celery, request: pytest.FixtureRequest) -> Celery:
    """An app with a task of a limit, one of another, and one without."""
    app.conf.result_backend = "cache+memory://"  # for chords
    install(app, fast_publish=request.param)

    @app.task(name="export", limit=("account", "account"), bind=True)
    def export(self: Any, account: Any, month: str = "May") -> None:
        self.retry(countdown=1)

    @app.task(name="charge", limit="stripe")
    def charge(order: Any = None) -> None: ...

    @app.task(name="plain")
    def plain(*args: Any) -> None: ...

    app.finalize()
    return app


def sent(app: Celery) -> Any:
    """Returns the header of the message that was sent first; None without one."""
    return published(app)["headers"].get(LIMIT_HEADER)


def test_a_call_has_the_key_of_its_arguments_or_its_own(installed: Celery) -> None:
    """``limit`` of the call goes before a header of the call, and that before the declaration."""
    export = installed.tasks["export"]
    header = {LIMIT_HEADER: "account:9", "x": 1}
    export.delay(7)
    export.apply_async((), {"account": 7, "month": "June"})
    installed.send_task("export", (7,))
    export.apply_async((7,), limit="account:8")
    installed.send_task("unknown", limit="account:8")
    export.apply_async((7,), headers=header)
    export.apply_async((7,), headers=header, limit="account:8")
    export.apply_async((7,), headers=header, limit=None)
    export.apply_async((7,), limit="")
    export.apply_async((7,), headers=header, limit="")
    installed.tasks["plain"].apply_async((7,), limit=None)
    keys = ["account:7"] * 3 + ["account:8"] * 2 + ["account:9", "account:8", "account:9", None, None, None]
    assert [sent(installed) for _ in keys] == keys
    assert header == {LIMIT_HEADER: "account:9", "x": 1}


def test_a_call_that_has_no_key_raises(installed: Celery) -> None:
    """A wrong limit, and arguments of which none can be made, are errors, and nothing is sent."""
    export = installed.tasks["export"]
    wrong: list[tuple[Any, dict[str, Any]]] = [((None,), {}), (([7],), {}), ((7,), {"limit": 7})]
    for args, options in wrong:
        with pytest.raises(InvalidLimit):
            export.apply_async(args, **options)
        with pytest.raises(InvalidLimit):
            installed.send_task("export", args, **options)
        with pytest.raises(InvalidLimit):
            export.apply(args, **options)


def test_each_task_of_a_workflow_has_its_own(installed: Celery) -> None:
    """Signatures keep ``limit`` in their options, and those without it have what their task declares."""
    export, charge, plain = (installed.tasks[name] for name in ("export", "charge", "plain"))
    group(export.s(1), export.s(2).set(limit="account:x"), charge.s(), plain.s()).apply_async()
    assert [sent(installed) for _ in range(4)] == ["account:1", "account:x", "stripe", None]
    chain(charge.si(1), export.s().set(limit="a:b")).apply_async()
    message = published(installed)
    assert message["headers"][LIMIT_HEADER] == "stripe"
    [_, _, embed] = json.loads(b64decode(message["body"]))
    [behind] = embed["chain"]
    installed.signature(behind).apply_async((7,))
    assert sent(installed) == "a:b"
    chord([export.s(1), charge.si(2)])(export.s().set(limit="c:d"))
    assert [sent(installed) for _ in range(2)] == ["account:1", "stripe"]


def test_a_retry_keeps_what_its_message_has(installed: Celery) -> None:
    """A retry has the key of its message, or none, whatever its arguments are; its own ``limit`` replaces it."""
    export = installed.tasks["export"]
    kept: list[tuple[dict[str, Any] | None, dict[str, Any], str | None]] = [
        ({LIMIT_HEADER: "account:9"}, {}, "account:9"),
        ({LIMIT_HEADER: "account:9"}, {"args": (8,)}, "account:9"),
        (None, {}, None),
        ({LIMIT_HEADER: "account:9"}, {"limit": "account:x"}, "account:x"),
        ({LIMIT_HEADER: "account:9"}, {"limit": ""}, None),
    ]
    for headers, options, key in kept:
        export.push_request(
            id="i", args=(7,), kwargs={}, called_directly=False, retries=0, delivery_info={}, headers=headers
        )
        try:
            with pytest.raises(Retry):
                export.retry(countdown=1, **options)
        finally:
            export.pop_request()
        assert sent(installed) == key


def test_an_eager_call_has_its_key(installed: Celery) -> None:
    """A task that runs where it is called sees the header, too."""
    seen = list[Any]()

    @installed.task(name="see", limit=("account", "account"), bind=True)
    def see(self: Any, account: int) -> None:
        seen.append((self.request.headers or {}).get(LIMIT_HEADER))

    installed.conf.task_always_eager = True
    see.delay(7).get()
    see.s(7).apply_async(limit="account:8").get()
    see.apply(kwargs={"account": 9}).get()
    see.apply((9,), limit="").get()
    assert seen == ["account:7", "account:8", "account:9", None]


def test_a_limit_that_nobody_reads_is_an_error(app: Celery) -> None:
    """Without ``install`` the call's ``limit`` is a property of its message, and a declaration has no effect."""

    @app.task(name="export", limit=("account", "account"))
    def export(account: int) -> None: ...

    export.apply_async((7,), limit="account:7")
    properties = published(app)["properties"]
    with pytest.raises(InvalidLimit, match="limit='account:7' of a call was not read"):
        check_unread(properties)
    check_unread({"limit": 5})  # a property of somebody who uses kombu
    assert "task export" in next(problems(app))
