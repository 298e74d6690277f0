"""What a publisher imports that installs our options of tasks, such as a web server, and a worker when it starts."""

import subprocess
import sys

import pytest

from tests.support import ROOT

#: What only workers, the shell, a server, Spark or a journal needs.
OF_OTHERS = {"celery.beat", "celery.worker.consumer", "pyspark", "sqlalchemy", "starlette"}


INSTALL = (
    "import celery, celery_ext; "
    "app = celery.Celery(broker='redis://127.0.0.1:1', broker_transport='kombu_delayq.transport:Transport'); "
    "celery_ext.install(app, fast_publish=True, periodic=True); app.producer_pool"
)
#: What needs a cluster.
OF_CLUSTER = {"kombu_delayq.cluster"}


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (INSTALL, OF_OTHERS | OF_CLUSTER),
        ("import celery_ext.doctor", OF_OTHERS - {"celery.worker.consumer"} | OF_CLUSTER),
        ("from celery_ext.cli import delayq", {"pyspark", "sqlalchemy", "starlette", *OF_CLUSTER}),
    ],
    ids=["install", "start of a worker", "celery command"],
)
def test_a_process_imports_nothing_that_only_others_need(code: str, absent: set[str]) -> None:
    """A publisher does without what workers or commands need, and all of them without what a cluster needs."""
    shown = f"import sys; print(*sorted({absent!r} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {shown}"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == ""
