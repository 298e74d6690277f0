"""``retry`` of tasks with chains, in one process: messages go to kombu's in-memory broker, or tasks run eagerly."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, Task
from celery.app.trace import trace_task
from celery.exceptions import Ignore, MaxRetriesExceededError, Retry, TaskPredicate
from celery.signals import task_failure

from celery_ext import delay_chain_exhausted, install
from kombu_delayq import InvalidDelayChain, InvalidDelayLevel
from tests.support.conditions import DEADLINE_S
from tests.support.messages import published


@pytest.fixture(autouse=True)
def installed(app: Celery) -> None:
    """Lets the app use chains."""
    install(app)


@pytest.fixture
def exhausted() -> Iterator[list[dict[str, Any]]]:
    """What the signal has told."""
    told: list[dict[str, Any]] = []

    def tell(sender: Any, **what: Any) -> None:
        told.append({"sender": sender, **what})

    delay_chain_exhausted.connect(tell, weak=False, dispatch_uid="unit")
    yield told
    delay_chain_exhausted.disconnect(dispatch_uid="unit")


def run(task: Any, *args: Any, retries: int = 0, **request: Any) -> Any:
    """Runs a task's body as a worker does, and its ``on_failure`` after an error; raises what the body raises."""
    task.push_request(id="i", args=args, kwargs={}, called_directly=False, retries=retries, delivery_info={}, **request)
    try:
        return task.run(*args)
    except Exception as error:
        if not isinstance(error, TaskPredicate):
            task.on_failure(error, "i", args, {}, None)
        raise
    finally:
        task.pop_request()


def test_each_retry_takes_the_step_of_its_position(app: Celery) -> None:
    """The n-th failure waits for the n-th step, as often as a step is repeated, and not at all for a step of 0."""

    @app.task(bind=True, delay_chain="4m,10m*2,0s,1h")
    def task(self: Any) -> None:
        self.retry()

    for retries, delay_s in enumerate([240, 600, 600, 0, 3600]):
        with pytest.raises(Retry) as raised:
            run(task, retries=retries)
        assert raised.value.when == delay_s
        assert published(app)["headers"]["retries"] == retries + 1
    with pytest.raises(MaxRetriesExceededError):
        run(task, retries=5)


def test_a_retry_may_wait_for_a_delay_level(app: Celery) -> None:
    """``retry(delay_level=)`` waits as long as the level says, instead of the chain's step, and with no countdown."""

    @app.task(bind=True, delay_chain="4m,10m")
    def task(self: Any, level: Any, countdown: Any = None) -> None:
        self.retry(delay_level=level, countdown=countdown)

    for level, delay_s in ((3, 10), (0, 0)):
        with pytest.raises(Retry) as raised:
            run(task, level)
        assert raised.value.when == delay_s
        published(app)
    with pytest.raises(InvalidDelayLevel, match="countdown"):
        run(task, 3, 5)


@pytest.mark.parametrize(
    ("retry", "when"),
    [({"countdown": 7}, 7), ({"countdown": 0}, 0), ({"eta": "2100-01-01"}, "2100-01-01"), ({"args": (5,)}, 240)],
)
def test_what_a_call_of_retry_says_wins(app: Celery, retry: dict[str, Any], when: Any) -> None:
    """An explicit countdown or eta goes before the step's delay, also a countdown of 0, and new arguments are sent."""

    @app.task(bind=True, delay_chain="4m,10m")
    def task(self: Any, value: int) -> None:
        self.retry(**retry)

    with pytest.raises(Retry) as raised:
        run(task, 1)
    assert raised.value.when == when
    assert raised.value.sig.args == retry.get("args", (1,))


#: What a request knows of how its message has its arguments, beside the content type.
ENCODING = {"argsrepr": "***", "kwargsrepr": "****", "compression": "application/x-gzip"}


@pytest.mark.parametrize(("new", "shown"), [({}, ("***", "****")), ({"args": (2,), "kwargs": {}}, ("(2,)", "{}"))])
def test_a_retry_is_written_as_the_message_was(app: Celery, new: dict[str, Any], shown: tuple[str, str]) -> None:
    """Its serializer, its compression and the texts that hide its arguments stay; new arguments go their own way."""

    @app.task(bind=True, delay_chain="4m,10m")
    def task(self: Any, *args: Any) -> None:
        self.retry(**new)

    with pytest.raises(Retry):
        run(task, object(), properties={"content_type": "application/x-python-serialize"}, **ENCODING)
    message = published(app)
    assert (message["headers"]["argsrepr"], message["headers"]["kwargsrepr"]) == shown
    assert message["headers"]["compression"] == "application/x-gzip"
    assert message["content-type"] == ("application/json" if new else "application/x-python-serialize")


@pytest.mark.parametrize(("given", "raised"), [({}, MaxRetriesExceededError), ({"exc": KeyError("why")}, KeyError)])
def test_a_chain_that_is_exhausted(
    app: Celery, exhausted: list[dict[str, Any]], given: dict[str, Any], raised: type[Exception]
) -> None:
    """After the last step the task fails as Celery's do, with ``exc`` or without one, and the signal tells all."""

    @app.task(bind=True, delay_chain="1s,2s")
    def task(self: Any) -> None:
        self.retry(**given)

    with pytest.raises(raised):
        run(task, retries=2)
    (told,) = exhausted
    assert (told["sender"].name, told["task_id"], told["request"].retries) == (task.name, "i", 2)
    assert (told["chain"].text, told["exception"]) == ("1s,2s", given.get("exc"))


def test_a_receiver_that_fails_changes_nothing(app: Celery, exhausted: list[dict[str, Any]]) -> None:
    """When a receiver of the signal raises, the other ones are told, and the task fails with its own error."""

    @app.task(bind=True, delay_chain="1s")
    def task(self: Any) -> None:
        self.retry(exc=KeyError("why"))

    def fail(**what: Any) -> None:
        raise RuntimeError("receiver")

    delay_chain_exhausted.connect(fail, weak=False, dispatch_uid="fails")
    try:
        with pytest.raises(KeyError, match="why"):
            run(task, retries=1)
    finally:
        delay_chain_exhausted.disconnect(dispatch_uid="fails")
    assert len(exhausted) == 1


def test_max_retries_of_a_call_only_lowers(app: Celery) -> None:
    """``max_retries`` of one call makes the chain shorter for it, never longer, and says nothing about later calls."""

    @app.task(bind=True, delay_chain="1s,2s,3s")
    def task(self: Any, max_retries: int | None) -> None:
        self.retry(max_retries=max_retries)

    for max_retries, retries in ((1, 1), (0, 0), (99, 3)):
        with pytest.raises(MaxRetriesExceededError):
            run(task, max_retries, retries=retries)
    for max_retries, retries in ((1, 0), (99, 2), (None, 2)):
        with pytest.raises(Retry):
            run(task, max_retries, retries=retries)


def test_a_task_gives_up_once_though_two_retries_fail(app: Celery, exhausted: list[dict[str, Any]]) -> None:
    """Where ``autoretry_for`` catches what an exhausted ``retry`` raised, nothing is sent, told or buried again."""

    @app.task(bind=True, delay_chain="1s,2s", dead_letter_queue="published", autoretry_for=(KeyError,))
    def task(self: Any, max_retries: int | None) -> None:
        self.retry(exc=KeyError("why"), max_retries=max_retries)

    for max_retries, retries in ((None, 2), (1, 1)):
        exhausted.clear()
        with pytest.raises(KeyError, match="why"):
            run(task, max_retries, retries=retries)
        assert len(exhausted) == 1
        with app.connection_for_write() as connection:
            assert connection.default_channel._size("published") == 1
        assert published(app)["headers"]["retries"] == 0


class CallingTask(Task):
    """A base class whose ``__call__`` calls Celery's, which runs the task with a copy of its request."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the task."""
        return super().__call__(*args, **kwargs)


def trace_last_run(app: Celery, after: type[Exception] | None, **options: Any) -> str:
    """Lets a worker run a task that handles the end of its retries, and then raises an error or returns.

    Returns:
        The state in which it ends.
    """

    @app.task(bind=True, delay_chain="1s", dead_letter_queue="published", **options)
    def task(self: Any) -> str:
        try:
            raise self.retry(exc=KeyError("why"))
        except KeyError:
            if after is not None:
                raise after("later") from None
            return "fallback"

    request = {"id": "i", "retries": 1, "delivery_info": {}}
    info = trace_task(app.tasks[task.name], "i", (), {}, request, app=app).info
    return "SUCCESS" if info is None else str(info.state)


def letters(app: Celery) -> int:
    """Returns how many messages wait in the queue ``published``."""
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        return int(channel._size("published")) if channel._has_queue("published") else 0


@pytest.mark.parametrize(("after", "state"), [(None, "SUCCESS"), (Ignore, "IGNORED")])
def test_a_task_that_handles_the_end_of_its_retries(
    app: Celery, exhausted: list[dict[str, Any]], after: Any, state: str
) -> None:
    """A task that returns a fallback after its last step, or ignores its message, has not failed."""
    assert trace_last_run(app, after) == state
    assert (exhausted, letters(app)) == ([], 0)


@pytest.mark.parametrize("base", [Task, CallingTask])
def test_an_error_after_the_end_of_the_retries(app: Celery, exhausted: list[dict[str, Any]], base: type[Task]) -> None:
    """A task that fails after its last step with another error is buried once, before anybody sees that it failed."""
    app.conf.result_backend = "cache+memory://"
    app.AsyncResult("i").forget()  # the cache is the process's own
    seen: list[Any] = []

    def note(**what: Any) -> None:
        seen.append((app.AsyncResult("i").state, letters(app)))

    delay_chain_exhausted.connect(note, weak=False, dispatch_uid="order")
    task_failure.connect(note, weak=False, dispatch_uid="order")
    try:
        assert trace_last_run(app, OSError, base=base, dead_letter_on="failure") == "FAILURE"
    finally:
        delay_chain_exhausted.disconnect(dispatch_uid="order")
        task_failure.disconnect(dispatch_uid="order")
    assert seen == [("PENDING", 1), ("FAILURE", 1)]
    [told] = exhausted
    assert repr(told["exception"]) == "KeyError('why')"
    buried = published(app)["properties"]["dead_letter"]
    assert (buried["reason"], buried["error"]) == ("delay chain exhausted", "KeyError: 'why'")


@pytest.mark.filterwarnings("ignore:Exception raised outside body")
def test_a_result_backend_that_fails_costs_no_dead_letter(
    app: Celery, exhausted: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that has no retry left is buried, also if its failure cannot be stored."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("no result backend")

    monkeypatch.setattr(app.backend, "mark_as_failure", fail)
    assert trace_last_run(app, OSError) == "FAILURE"
    assert (len(exhausted), letters(app)) == (1, 1)


def test_a_broker_that_takes_no_dead_letter(app: Celery, caplog: pytest.LogCaptureFixture) -> None:
    """A task whose dead letter is not taken fails with its own error, and the log says which one is lost."""

    @app.task(bind=True, name="task", delay_chain="1s", dead_letter_queue="failed", serializer="no such serializer")
    def task(self: Any) -> None:
        self.retry(exc=KeyError("why"))

    with pytest.raises(KeyError, match="why"):
        run(task, retries=1)
    assert "task[i] could not be put into 'failed'" in caplog.text


def test_limits_of_calls_in_other_threads_do_not_mix(app: Celery) -> None:
    """The limit of a call with a short chain of its own is none for the same task's message in another thread."""
    in_retry, go_on = threading.Event(), threading.Event()

    @app.task(bind=True, delay_chain="1s,2s,3s", autoretry_for=(KeyError,))
    def task(self: Any) -> None:
        raise KeyError

    short = {"delay_chain": "1s"}
    original = app.send_task

    def slow_send(*args: Any, **options: Any) -> Any:
        if options["delay_chain"] == "1s":
            in_retry.set()
            assert go_on.wait(DEADLINE_S)
        return original(*args, **options)

    app.send_task = slow_send
    raised: list[BaseException] = []

    def other() -> None:
        try:
            run(task, properties=short)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    assert in_retry.wait(DEADLINE_S)
    with pytest.raises(Retry) as here:
        run(task, retries=2)
    go_on.set()
    thread.join(DEADLINE_S)
    assert here.value.when == 3
    assert [type(error) for error in raised] == [Retry]
    with pytest.raises(Retry):
        run(task, retries=2)


def test_the_chain_of_a_message_goes_before_the_task_s(app: Celery) -> None:
    """A message with a chain of its own is retried by it, also where the task has none, and hands it on."""

    @app.task(bind=True, delay_chain="1s", max_retries=1)
    def chained(self: Any) -> None:
        self.retry()

    @app.task(bind=True, max_retries=1)
    def plain(self: Any) -> None:
        self.retry()

    for task in (chained, plain):
        properties = {"delay_chain": "5m,6m,7m", "delivery_tag": "first"}
        for retries, delay_s in enumerate([300, 360, 420]):
            with pytest.raises(Retry) as raised:
                run(task, retries=retries, properties=properties)
            assert raised.value.when == delay_s
            properties = published(app)["properties"]
            assert (properties["delay_chain"], properties["delay_chain_id"]) == ("5m,6m,7m", "first")
        with pytest.raises(MaxRetriesExceededError):
            run(task, retries=3, properties=properties)


def test_a_chain_that_no_release_of_ours_wrote(app: Celery) -> None:
    """A message whose chain cannot be read fails with an error that shows it, when it is retried."""

    @app.task(bind=True)
    def task(self: Any) -> None:
        self.retry(exc=KeyError())

    with pytest.raises(InvalidDelayChain, match="2fortnights"):
        run(task, properties={"delay_chain": "2fortnights"})


def test_a_direct_call_runs_no_chain(app: Celery, exhausted: list[dict[str, Any]]) -> None:
    """A task that is called as a function raises its own error, and nothing is sent, told or buried."""

    @app.task(bind=True, delay_chain="1s", dead_letter_queue="failed")
    def task(self: Any) -> None:
        self.retry(exc=KeyError("why"))

    with pytest.raises(KeyError, match="why"):
        task()
    assert exhausted == []


def test_chains_limit_retries_of_eager_tasks(app: Celery, exhausted: list[dict[str, Any]]) -> None:
    """With ``task_always_eager`` a chain, of the task or of a call, is gone through at once, and nothing is buried."""
    app.conf.task_always_eager = True
    runs: list[int] = []

    @app.task(bind=True, delay_chain="4m,10m", dead_letter_queue="failed", autoretry_for=(KeyError,))
    def task(self: Any, inner: bool = True) -> None:
        runs.append(self.request.retries)
        if inner:
            other.delay()
        raise KeyError("why")

    @app.task(bind=True, max_retries=1)
    def other(self: Any) -> None:
        self.retry(exc=ValueError())

    assert isinstance(task.delay().result, KeyError)
    assert runs == [0, 1, 2]
    assert [told["chain"].text for told in exhausted] == ["4m,10m"]
    runs.clear()
    result = task.apply_async((), delay_chain="1h,2h,3h,4h")
    assert isinstance(result.result, KeyError)
    assert runs == [0, 1, 2, 3, 4]
    runs.clear()
    task.s().set(delay_chain="1h").apply()
    assert runs == [0, 1]
    with pytest.raises(InvalidDelayChain):
        task.apply_async((), delay_chain="1x")
    with app.connection_for_write() as connection:
        assert not connection.default_channel._has_queue("failed")


def test_calls_with_a_bad_chain_are_refused(app: Celery) -> None:
    """A chain of a call that is none, or one of 10,000 steps, is refused where it is called, with the limit named."""

    @app.task
    def task() -> None: ...

    for call in (task.apply_async, task.s().apply_async, lambda **options: app.send_task("unknown", **options)):
        with pytest.raises(InvalidDelayChain, match="step 2, '2y'"):
            call(delay_chain="1s,2y")
        with pytest.raises(InvalidDelayChain, match="more than 1000 steps, which is the limit"):
            call(delay_chain="1s " * 10_000)
