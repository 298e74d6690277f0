import pickle
from typing import Any

import pytest
from celery import Celery, Task, shared_task
from celery.signals import task_failure

from celery_ext import DelayChain, install
from kombu_delayq import InvalidDelayChain
from tests.support.messages import published

CHAIN = "4m,10m*2,1h"


def _nothing() -> None: ...


def test_tasks_declared_before_and_after_have_their_chains(app: Celery) -> None:
    """Tasks with a chain that are declared before and after ``install`` get it as a value that limits retries."""

    @app.task(delay_chain=CHAIN)
    def before() -> None: ...

    before.name  # noqa: B018  # lazy until here
    reference = app.tasks[before.name]

    @app.task(delay_chain=CHAIN)
    def lazy_before() -> None: ...

    install(app)

    @app.task(delay_chain=DelayChain.parse(CHAIN))
    def after() -> None: ...

    app.finalize()

    @app.task(delay_chain=CHAIN)
    def after_finalize() -> None: ...

    for task in (before, lazy_before, after, after_finalize, reference):
        assert task.delay_chain == DelayChain.parse(CHAIN)
        assert task.max_retries == len(task.delay_chain) == 4
        assert task.dead_letter_queue is None
        assert app.tasks[task.name] == task
    assert reference is app.tasks[before.name]


def test_a_second_install_changes_nothing(app: Celery) -> None:
    """``install`` may be called again and again, also after something else has wrapped the app's ``send_task``."""

    @app.task(delay_chain=CHAIN)
    def task() -> None: ...

    install(app)
    kinds = type(app.tasks), type(app.tasks[task.name]), app.send_task
    install(app)
    assert (type(app.tasks), type(app.tasks[task.name]), app.send_task) == kinds

    sender = app.send_task
    app.send_task = lambda *args, **options: sender(*args, **options)
    install(app)
    task.apply_async(delay_chain="1m", delay_level=1)
    assert published(app)["properties"]["delay_chain"] == "1m"


def test_what_is_done_to_celery_later_is_not_left_out(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``send_task`` that a tracer puts into the class of apps after ``install`` is called with each task."""
    install(app)
    original, seen = Celery.send_task, []

    def traced(self: Celery, *args: Any, **options: Any) -> Any:
        seen.append(args[0])
        return original(self, *args, **options)

    monkeypatch.setattr(Celery, "send_task", traced)
    app.send_task("unknown", delay_level=1)
    assert seen == ["unknown"]


def test_tasks_without_a_chain_stay_as_they_are(app: Celery) -> None:
    """A task without a chain keeps its limit, its name, its module, its text and its source."""

    @app.task(max_retries=7)
    def plain() -> None:
        """Says this."""

    task = app.tasks[plain.name]
    before = {name: getattr(task, name) for name in ("__name__", "__module__", "__qualname__", "__doc__", "run")}
    shown = repr(task)
    install(app)
    assert (task.max_retries, task.delay_chain, task.dead_letter_queue) == (7, None, None)
    assert {name: getattr(task, name) for name in before} == before
    assert repr(task) == shown


def test_a_task_that_is_registered_meanwhile_has_its_chain(app: Celery) -> None:
    """While a thread installs an app, another may declare a task, whose declaration is read, too."""
    late: list[Any] = []

    class Registers(Task):
        """Its first declared option is read while an app is installed; then somebody registers another task."""

        abstract = True

        @property
        def waiting_key(self) -> None:
            if not late:
                late.append(app.task(name="late", delay_chain=CHAIN, lazy=False)(_nothing))

    app.task(name="early", base=Registers, lazy=False)(_nothing)
    install(app)
    assert app.tasks["late"].max_retries == 4


def test_a_wrong_declaration_is_said_at_each_install(app: Celery) -> None:
    """An app with a wrong delay chain can be installed once that is mended, and says what is wrong until then."""
    app.task(name="early", delay_chain=CHAIN, lazy=False)(_nothing)
    wrong = app.task(name="wrong", delay_chain="soon", lazy=False)(_nothing)
    for _ in range(2):
        with pytest.raises(InvalidDelayChain, match="task wrong"):
            install(app)
    wrong.delay_chain = CHAIN
    install(app)
    assert {app.tasks[name].max_retries for name in ("early", "wrong")} == {4}


def test_shared_tasks_and_several_apps(app: Celery) -> None:
    """A shared task has its chain in each app that is installed, and is Celery's own in any other."""

    @shared_task(name="shared", delay_chain=CHAIN, shared=True)
    def shared() -> None: ...

    with Celery("two", set_as_current=False) as two, Celery("plain", set_as_current=False) as plain:
        install(app)
        install(two)
        for each in (app, two):
            assert each.tasks["shared"].max_retries == 4
        assert plain.tasks["shared"].max_retries == 3
        assert plain.tasks["shared"].delay_chain == CHAIN
        assert app.tasks["shared"] is not two.tasks["shared"]


def test_apps_with_one_registry(app: Celery) -> None:
    """Two apps that share their tasks may both be installed."""
    app.finalize()
    with Celery("two", broker="memory://", tasks=app.tasks, set_as_current=False) as two:
        install(app)
        install(two)

        @two.task(delay_chain=CHAIN)
        def task() -> None: ...

        assert app.tasks[task.name].max_retries == 4


def test_an_app_that_is_given_as_current_app(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """``install(current_app)`` is for the app that is current then, also when another becomes current later."""
    from celery import current_app

    app.conf.delayq_levels = "bad"
    with monkeypatch.context() as patch:
        patch.setattr("celery._state._tls.current_app", app)
        install(current_app)
    assert current_app._get_current_object() is not app
    with pytest.raises(ValueError, match="bad"):
        app.send_task("t", delay_level=1)


def nothing() -> None: ...


class ClassBased(Task):
    """A task as a class."""

    name = "class based"
    delay_chain = CHAIN
    dead_letter_queue = "failed"

    def run(self, value: int = 1) -> int:
        """Calls something of its base class, which must not be this class again."""
        return super().max_retries and value


@pytest.mark.parametrize("given", [ClassBased, ClassBased()])
def test_class_based_tasks(app: Celery, given: Any) -> None:
    """``register_task`` takes classes and instances with a chain, and their methods find their base class."""
    install(app)
    task = app.register_task(given)
    assert (task.max_retries, task.delay_chain.text, task.dead_letter_queue) == (4, CHAIN, "failed")
    assert isinstance(task, ClassBased)
    assert task(21) == 21
    assert ClassBased.max_retries == 3, "the class that the user wrote stays as it is"


def test_annotations_give_chains(app: Celery) -> None:
    """A chain from ``task_annotations`` counts as the task's own, and its limit is read from the task."""
    app.conf.task_annotations = {"annotated": {"delay_chain": CHAIN, "dead_letter_queue": "failed"}}

    @app.task(name="annotated", delay_chain="1s")
    def task() -> None: ...

    install(app)
    assert (task.max_retries, task.delay_chain.text, task.dead_letter_queue) == (4, CHAIN, "failed")


def test_annotations_of_tasks_declared_before(app: Celery) -> None:
    """A chain from ``task_annotations`` counts also for a task that was in use before ``install``."""
    app.conf.task_annotations = {"annotated": {"delay_chain": CHAIN}}

    @app.task(name="annotated")
    def task() -> None: ...

    app.finalize()
    install(app)
    assert (task.max_retries, task.delay_chain.text) == (4, CHAIN)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delay_chain": "4m,10x"}, "step 2, '10x', of the delay chain '4m,10x'"),
        ({"delay_chain": "1s*10000"}, "more than 1000 steps, which is the limit"),
        ({"delay_chain": ",".join(["1s"] * 10_000)}, "more than 1000 steps, which is the limit"),
        ({"delay_chain": 60}, "not 60"),
        ({"delay_chain": "1s", "retry_backoff": True}, "both a delay_chain and retry_backoff"),
        ({"delay_chain": "1s", "retry_backoff": 5}, "both a delay_chain and retry_backoff"),
    ],
)
@pytest.mark.parametrize("how", ["before", "after", "class", "annotation"])
def test_errors_name_the_task(app: Celery, options: dict[str, Any], reason: str, how: str) -> None:
    """A task whose chain is none is refused with its name and the reason, however it was declared."""

    def declare() -> None:
        if how == "class":
            app.register_task(type("Bad", (Task,), {"name": "bad one", "run": lambda self: None, **options}))
        elif how == "annotation":
            app.conf.task_annotations = {"bad one": options}
            app.task(name="bad one")(nothing)
        else:
            app.task(name="bad one", **options)(nothing)
        app.finalize()

    if how == "before":
        declare()
    else:
        install(app)
    with pytest.raises(InvalidDelayChain) as raised:
        install(app) if how == "before" else declare()
    assert str(raised.value).startswith("task bad one")
    assert reason in str(raised.value)


def test_declarations_keep_their_options(app: Celery) -> None:
    """``bind``, ``typing``, ``autoretry_for`` and ``ignore_result`` of a task with a chain work as ever."""
    install(app)

    @app.task(bind=True, delay_chain=CHAIN, autoretry_for=(KeyError,), ignore_result=True, typing=True)
    def bound(self: Any, value: int) -> Any:
        assert self.request.id
        raise KeyError(value)

    @app.task(delay_chain=CHAIN, typing=False)
    def loose(value: int) -> None: ...

    with pytest.raises(TypeError, match="value"):
        bound.delay()
    loose.delay()
    published(app)
    assert bound.ignore_result
    seen: list[Any] = []
    task_failure.connect(lambda **kwargs: seen.append(kwargs), weak=False, dispatch_uid="unit")
    try:
        assert isinstance(bound.apply((1,)).result, KeyError)
    finally:
        task_failure.disconnect(dispatch_uid="unit")
    assert len(seen) == 1


def test_tasks_and_apps_are_pickled(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apps that are installed can be pickled as ever, and a task pickles into its name."""
    install(app)

    @app.task(name="pickled", delay_chain=CHAIN)
    def task() -> None: ...

    task.delay()
    copy = pickle.loads(pickle.dumps(app))
    assert copy.main == app.main
    monkeypatch.setattr("celery._state._tls.current_app", app)
    assert pickle.loads(pickle.dumps(app.tasks["pickled"])).name == "pickled"
    chain = pickle.loads(pickle.dumps(task.delay_chain))
    assert (chain, chain.text) == (DelayChain.parse(CHAIN), CHAIN)
