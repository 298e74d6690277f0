"""Checks of an app, which connect to nothing."""

from importlib import metadata
from typing import Any

import pytest
from celery import Celery

import celery_ext
from celery_ext.connection import bypasses
from kombu_delayq.errors import DelayqError
from tests.support.examining import app_with, levels, look

pytestmark = pytest.mark.usefixtures("unshared")


def test_a_sound_app_has_no_finding() -> None:
    """An app on our transport with everything at its default passes."""
    app = app_with()
    for check in ("transport", "broker-url", "options", "timeouts", "install", "chains", "visibility-timeout"):
        assert look(check, app) == [], check


#: The setting with the transport options.
OPTIONS = "broker_transport_options"
#: By check: settings of an app, how bad what the check finds is, and what it says of it or of what to do.
FOUND: list[tuple[str, dict[str, Any], str, str]] = [
    ("transport", {"broker_transport": ""}, "error", "stock transport"),
    ("transport", {"broker_transport": "", "broker_url": "amqp://a"}, "error", "kombu_delayq.transport:Transport"),
    ("broker-url", {"broker_url": "sentinel://localhost:1"}, "error", "master_name"),
    ("broker-url", {"broker_url": "rediss://localhost:6379/0"}, "notice", "does not check the certificate"),
    (
        "broker-url",
        {"broker_read_url": "redis://reader:6379/0", "broker_write_url": "redis://writer:6379/0"},
        "notice",
        "publishes to redis://writer:6379/0 and consumes from redis://reader:6379/0",
    ),
    (
        "settings",
        {"delayq_levls": "1s"},
        "warning",
        "nothing reads the setting delayq_levls (did you mean 'delayq_levels'",
    ),
    ("settings", {"DELAYQ_LEVELS": "1s"}, "warning", "name it delayq_levels"),
    ("options", {OPTIONS: {"max_dleay": 3}}, "error", "max_delay"),
    ("options", {OPTIONS: {"poll_interval": "many"}}, "error", "poll_interval"),
    ("options", {OPTIONS: {"frobnicate": 1}}, "warning", "neither kombu nor kombu-delayq reads"),
    ("timeouts", {OPTIONS: {"socket_timeout": None}}, "warning", "stands still for ever"),
    ("timeouts", {OPTIONS: {"socket_timeout": 600}}, "warning", "stands still for so many seconds"),
    ("timeouts", {"result_backend": "redis://", "redis_socket_timeout": None}, "warning", "redis_socket_timeout"),
    (
        "journal-horizon",
        {OPTIONS: {"journal_url": "sqlite://", "journal_horizon": 1800.0}},
        "warning",
        "journal_horizon=1800 is not well above",
    ),
]


@pytest.mark.parametrize(("check", "conf", "level", "said"), FOUND)
def test_what_is_wrong_with_settings_is_found(check: str, conf: dict[str, Any], level: str, said: str) -> None:
    """Each mistake is found once, and is as bad as what comes of it; what to do is said."""
    [found] = look(check, app_with(**conf))
    assert (found.level, said in f"{found.found} {found.do}") == (level, True), found


@pytest.mark.parametrize(
    ("check", "conf"),
    [
        ("broker-url", {"broker_url": "sentinel://localhost:1", OPTIONS: {"master_name": "main"}}),
        ("broker-url", {"broker_url": "delayqs://localhost:6379/0"}),
        ("options", {OPTIONS: {"visibility_timeout": 7200, "global_keyprefix": "shop.", "polling_interval": 1}}),
        ("options", {OPTIONS: {"master_name": "main"}}),
        ("timeouts", {"result_backend": "redis://", OPTIONS: {"socket_timeout": 10}}),
    ],
)
def test_what_is_right_is_no_finding(check: str, conf: dict[str, Any]) -> None:
    """Nothing is said of options of kombu, with Sentinel and in a cluster either, and of TLS that is checked."""
    assert look(check, app_with(**conf)) == []


def test_visibility_timeout_is_above_the_lease_of_consumers() -> None:
    """A sweep of kombu would give away what a living consumer holds."""
    [found] = look("visibility-timeout", app_with(**{OPTIONS: {"visibility_timeout": 30}}))
    assert "visibility_timeout=30 is not above consumer_ttl=60" in found.found


def test_a_variable_that_hides_the_setting_is_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery reads CELERY_BROKER_URL before the app's own URL, and nothing tells."""
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://:s3cret@elsewhere:6379/3")
    [found] = look("broker-url", app_with())
    assert (found.level, "CELERY_BROKER_URL takes the place of the setting" in found.found) == ("notice", True)
    assert "s3cret" not in found.found


def test_a_transport_that_does_not_exist_is_named() -> None:
    """A misspelled dotted path is no failure of the check."""
    app = app_with(broker_transport="kombu_delayq.transprt:Transport")
    assert levels(look("transport", app)) == ["error"]
    [found] = look("broker-url", app)
    assert "kombu cannot load the transport 'kombu_delayq.transprt:Transport'" in found.found


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+socket://:s3cret@/run/redis.sock", "makes kombu overlook broker_transport"),
        ("delayq+redis://:s3cret@localhost", "write delayq://"),
        ("localhost:6379", "the scheme of the broker URL is missing"),
        ("redis://:s3cret@localhost/shop", "names the database 'shop', which is no number"),
        ("redis://:s3cr#et@localhost:6379/0", "has the character '#'"),
        ("delayq://a;delayqs://b", "a list of broker URLs must be all"),
        ("delayqs://:s3cret@localhost?ssl_cert_reqs=bogus", "ssl_cert_reqs=bogus; write required, optional or none"),
    ],
)
def test_traps_of_broker_urls_are_found(url: str, said: str) -> None:
    """Each URL that would lead elsewhere is an error, which does not show the password."""
    found = look("broker-url", app_with(broker_url=url))
    assert any(said in each.found + each.do and each.level == "error" for each in found), found
    assert not any("s3cr" in each.found + each.do for each in found)


@pytest.mark.parametrize("transport", ["kombu_delayq.cluster:Transport", "kombu_delayq.transport:Transport"])
def test_a_url_of_a_cluster_may_stand_beside_a_transport_of_ours(transport: str) -> None:
    """Both lead to the transport for a cluster, so nothing is wrong, and a worker starts."""
    app = app_with(broker_url="delayq+cluster://localhost:7001,localhost:7002/0", broker_transport=transport)
    assert look("transport", app) == look("broker-url", app) == []
    assert list(bypasses(app.conf)) == []
    assert app.connection_for_write().transport.client.transport_cls == "kombu_delayq.cluster:Transport"


def test_programs_that_read_the_url_themselves_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the scheme delayq, the check names an installed program that reads the broker URL, else none."""
    installed = {"celery-redbeat": "2.3.2"}

    def version(package: str) -> str:
        if package not in installed:
            raise metadata.PackageNotFoundError(package)
        return installed[package]

    monkeypatch.setattr(metadata, "version", version)
    [found] = look("broker-url", app_with(broker_url="delayq://localhost", broker_transport=None))
    assert (found.level, "celery-redbeat reads the broker URL" in found.found) == ("warning", True)
    assert "redbeat_redis_url" in found.do
    assert look("broker-url", app_with(broker_url="redis://localhost")) == []


def test_a_setting_without_the_prefix_of_its_namespace_is_named() -> None:
    """Celery reads only those with it; an app without a namespace needs none."""
    app = Celery("shop", set_as_current=False)
    app.config_from_object({"DELAYQ_LEVELS": "1s,5s", "CELERY_DELAYQ_DEAD_LETTER_ON": "failure"}, namespace="CELERY")
    [found] = look("settings", app)
    assert found.found == "the setting DELAYQ_LEVELS is not read: the app has namespace='CELERY'"
    assert (found.level, found.do) == ("warning", "name it CELERY_DELAYQ_LEVELS")
    assert look("settings", app_with(delayq_levels="1s,5s", delayq_send_on_commit=None)) == []
    app.config_from_object({"CELERY_DELAYQ_LEVELS": "1s", "DELAYQ_SERVE": {}, "DELAYQ_APP": "shop"}, namespace="CELERY")
    assert look("settings", app) == []


def test_install_is_missed_where_something_needs_it() -> None:
    """A publisher without install reads no delay chain and no levels."""
    app = app_with(delayq_levels="1s 5s")

    @app.task(shared=False, name="charge", delay_chain="4m,10m", autoretry_for=(DelayqError,))
    def charge() -> None:
        """Has a delay chain."""

    [found] = look("install", app)
    assert found.level == "warning"
    for user in ("of charge", "delayq_levels"):
        assert user in found.found
    celery_ext.install(app)
    assert look("install", app) == []


@pytest.mark.parametrize("installed", [False, True])
def test_a_chain_for_which_no_failure_waits_is_found(installed: bool) -> None:
    """Only the task that neither names failures nor retries itself is named, with and without install."""
    app = app_with()

    @app.task(shared=False, name="idle", delay_chain="4m,10m")
    def idle() -> int:
        return 1

    @app.task(shared=False, name="busy", delay_chain="4m,10m", autoretry_for=(DelayqError,))
    def busy() -> None:
        """Waits for the chain when it fails."""

    if installed:
        celery_ext.install(app)
    [found] = look("chains", app)
    assert (found.level, "delay_chain has no effect in idle:" in found.found) == ("warning", True)


def test_visibility_timeout_counts_where_consuming_is_kombus() -> None:
    """A task that may run for longer than the timeout is named, unless consumers take."""
    for options, expected in (({"consume": "brpop"}, ["warning"]), ({}, [])):
        app = app_with(broker_transport_options={"visibility_timeout": 600, **options})

        @app.task(shared=False, name="report", time_limit=900)
        def report() -> None:
            """May take longer than the timeout."""

        found = look("visibility-timeout", app)
        assert levels(found) == expected
        assert all("tasks may run for 15m" in each.found and "report" in each.found for each in found)


def test_late_tasks_without_a_limit_are_a_notice_on_the_stock_transport() -> None:
    """Nobody knows how long they run; the setting for all tasks is a limit, too."""
    for limit, expected in ((None, ["notice"]), (600, [])):
        app = app_with(broker_transport="", task_acks_late=True, task_time_limit=limit)

        @app.task(shared=False, name="unlimited")
        def unlimited() -> None:
            """Runs for as long as it likes."""

        assert levels(look("visibility-timeout", app)) == expected


def test_priorities_that_do_not_do_what_they_say_are_found() -> None:
    """RabbitMQ's limit of priorities, and two priorities that share a list, are notices; different lists are none."""
    app = app_with(task_queue_max_priority=10)
    [found] = look("priorities", app)
    assert (found.level, "0 runs first" in found.found) == ("notice", True)
    app = app_with(
        task_default_priority=4, task_routes={"shop.mail": {"priority": 3}, "shop.*": {"queue": "q", "priority": 9}}
    )
    [found] = look("priorities", app)
    assert (found.level, found.found.startswith("the priorities 3 and 4 are one")) == ("notice", True)
    assert "shop.mail" in found.found
    app.conf.broker_transport_options = {"priority_steps": list(range(10))}
    assert look("priorities", app) == []
