"""The plugin in sessions of pytest: what a project sees of it, and the projects in docs/examples/testing."""

import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
PLUGIN = "celery_ext.testing.plugin"
EXAMPLES = ROOT / "docs/examples/testing"

SHOP = """
    from celery import Celery

    app = Celery("shop", broker="redis://nowhere.invalid/0", backend="redis://nowhere.invalid/0")
    app.conf.broker_transport = "kombu_delayq.transport:Transport"
    done = []

    @app.task(name="shop.remind")
    def remind(*args):
        done.append(args)
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with an app."""
    pytester.makepyfile(shop=SHOP)
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    return pytester


def run_with_all(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Runs the tests of a project in a process of its own, with all plugins that are installed."""
    known = any(entry.value == PLUGIN for entry in entry_points(group="pytest11"))  # of an older checkout, it is not
    return project.runpytest_subprocess(*(() if known else ("-p", PLUGIN)), *options, timeout=120)


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Runs them with this plugin and that of xdist alone: the others take seconds to import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return project.runpytest_subprocess("-p", PLUGIN, "-p", "xdist", *options, timeout=120)


@pytest.mark.parametrize(
    ("module", "absent"),
    [(PLUGIN, {"celery", "kombu", "kombu_delayq", "redis"}), ("celery_ext.testing.delayed_tasks", set())],
)
def test_the_start_of_pytest_imports_nothing_heavy(module: str, absent: set[str]) -> None:
    """The plugin's module imports no Celery, and nothing but that module imports pytest."""
    absent = absent or {"pytest"}
    code = f"import sys, {module}; print(*({absent!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


def test_a_plain_project_needs_no_setting(project: pytest.Pytester) -> None:
    """Tests of a module-level app pass without a broker, and leave nothing for the next test."""
    project.makepyfile(
        """
        from datetime import timedelta
        import pytest
        from shop import app, done, remind

        @pytest.mark.parametrize("number", range(3))
        def test_remind(delayed_tasks, number):
            done.clear()
            result = remind.apply_async((number,), countdown=1800)
            assert delayed_tasks.has("shop.remind", in_="30m", args=(number,))
            assert delayed_tasks.has(remind, in_=timedelta(minutes=30), count=1)
            delayed_tasks.advance("30m")
            assert done == [(number,)]
            assert result.successful()

        def test_at_the_end():
            assert app.conf.broker_url == "redis://nowhere.invalid/0"
        """
    )
    run_with_all(project).assert_outcomes(passed=4)


def test_a_failed_test_says_what_waits(project: pytest.Pytester) -> None:
    """The ``assert`` and the report name what waits and what has run."""
    project.makepyfile(
        """
        from shop import remind

        def test_remind(delayed_tasks):
            remind.delay(0)
            remind.apply_async((1,), countdown=1800)
            delayed_tasks.run_due()
            remind.delay(2)
            assert delayed_tasks.has("shop.remind", in_="20m")

        def test_none(delayed_tasks):
            assert delayed_tasks.has("shop.remind")

        def test_two(delayed_tasks):
            remind.apply_async((1,), countdown=1800)
            assert delayed_tasks.has("shop.remind", count=2)

        def test_found(delayed_tasks):
            remind.apply_async((1,), countdown=1800)
            assert not delayed_tasks.has("shop.remind")
        """
    )
    result = run(project)
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(
        [
            "*<no such task waits; all that waits: shop.remind(1) in 30m 0s, queue celery; sent without a delay, *: "
            "shop.remind>*",
            "*- Delayed tasks -*",
            "waiting:",
            "  shop.remind(1) in 30m 0s, queue celery",
            "sent without a delay, and not run yet:",
            "  shop.remind",
            "ran:",
            "  <shop.remind(0) SUCCESS>",
            "*<no such task waits; all that waits: nothing>*",
            "*<1 such task waits, not 2; all that waits: shop.remind(1) in 30m 0s, queue celery>*",
            "*assert not <1 such task waits; all that waits: shop.remind(1) in 30m 0s, queue celery>*",
        ]
    )


def test_processes_of_xdist_do_not_meet(project: pytest.Pytester) -> None:
    """With pytest-xdist no test sees, on a Redis, the tasks of a test in another process."""
    project.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def delayed_tasks_broker():
            return "redis"
        """
    )
    project.makepyfile(
        """
        import pytest
        from shop import done, remind

        @pytest.mark.parametrize("number", range(20))
        def test_remind(delayed_tasks, number):
            done.clear()
            remind.apply_async((number,), countdown=60)
            assert delayed_tasks.has(count=1)
            delayed_tasks.advance("1m")
            assert done == [(number,)]
        """
    )
    run(project, "-n", "2").assert_outcomes(passed=20)


@pytest.mark.parametrize(
    ("broker", "said"),
    [("fakeredis", "*it has to be 'memory', 'redis' or a URL*"), ("redis://127.0.0.1:1/0", "*Connection refused*")],
)
def test_a_wrong_broker_is_named(project: pytest.Pytester, broker: str, said: str) -> None:
    """A broker that is none, or that is away, is an error that says so, and harms no other test."""
    project.makeconftest(
        f"""
        import pytest

        @pytest.fixture(scope="session")
        def delayed_tasks_broker():
            return {broker!r}
        """
    )
    project.makepyfile(
        """
        from shop import remind

        def test_remind(delayed_tasks):
            assert not delayed_tasks.waiting()

        def test_other():
            pass
        """
    )
    result = run(project, "-o", "filterwarnings=default")
    assert result.parseoutcomes()["passed"] == 1
    result.stdout.fnmatch_lines([said])


@pytest.mark.parametrize(
    ("example", "needed", "passed"),
    [("fastapi_trials", ["fastapi"], 2), ("django_orders", ["django", "pytest_django"], 2)],
)
def test_the_tests_of_an_example_pass(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, example: str, needed: list[str], passed: int
) -> None:
    """The tests of a project pass in a checkout, without the plugins of its own tests, and with warnings as errors."""
    for module in needed:
        pytest.importorskip(module, reason="the extra `test-all` brings it")
    directory = pytester.path / example
    shutil.copytree(EXAMPLES / example, directory, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", pytester.path)
    monkeypatch.chdir(directory)
    run_with_all(pytester, "-p", "no:timeout", "-W", "error").assert_outcomes(passed=passed)


def test_the_how_to_names_the_examples() -> None:
    """The page leads to the projects."""
    page = (ROOT / "docs/how-to/testing.md").read_text(encoding="utf-8")
    for example in (path for path in EXAMPLES.iterdir() if path.is_dir()):
        assert f"examples/testing/{example.name}" in page
