"""The fixture beside those of ``celery.contrib.pytest``, in sessions of pytest."""

import pytest

from tests.integration.testing.test_plugin import run

pytest_plugins = ["pytester"]


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with Celery's fixtures."""
    pytester.makeconftest(
        """
        import pytest
        pytest_plugins = ["celery.contrib.pytest"]

        @pytest.fixture(scope="session")
        def celery_includes():
            return ["celery.contrib.testing.tasks"]
        """
    )
    pytester.makepyfile(
        tasks="""
        import threading

        def declare(app, name):
            @app.task(name=name, bind=True, shared=False)
            def where(self, fails=0):
                if self.request.retries < fails:
                    raise self.retry(countdown=60)
                return threading.current_thread() is threading.main_thread()

            return where
        """
    )
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    return pytester


TEST = """
    from tasks import declare

    def test_it({fixtures}):
        where = declare({app}, __name__)
        {reload}
        result = where.apply_async((2,), countdown=1800)
        assert delayed_tasks.has(__name__, in_="30m")
        delayed_tasks.advance("31m")
        assert [ran.state for ran in delayed_tasks.ran] == ["RETRY", "RETRY"]
        assert not result.ready()
        delayed_tasks.advance("1m")
        assert result.get(timeout=30) is {in_main_thread}
"""


@pytest.mark.parametrize(
    ("fixtures", "app", "in_main_thread"),
    [
        ("delayed_tasks, celery_app", "celery_app", True),
        ("celery_app, celery_worker, delayed_tasks", "celery_app", False),
        ("delayed_tasks, celery_session_worker, celery_session_app", "celery_session_app", False),
    ],
)
def test_in_any_order(project: pytest.Pytester, fixtures: str, app: str, in_main_thread: bool) -> None:
    """In whatever order a test names the fixtures, a worker runs the tasks if there is one, else the test does."""
    given: dict[str, object] = {"fixtures": fixtures, "app": app, "in_main_thread": in_main_thread}
    given["reload"] = f"{fixtures.split(', ')[1]}.reload()" if "worker" in fixtures else ""
    project.makepyfile(test_one=TEST.format(**given), test_two=TEST.format(**given))
    run(project).assert_outcomes(passed=2)
