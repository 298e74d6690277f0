"""What a publisher imports that installs our options of tasks, such as a web server."""

import subprocess
import sys

from tests.support import ROOT

#: What only workers, the shell, a server, Spark or a journal needs.
OF_OTHERS = {"celery.beat", "celery.worker.consumer", "pyspark", "sqlalchemy", "starlette"}


def test_install_imports_nothing_that_others_need() -> None:
    """An app with our options, on our transport, is ready to publish without what only others need."""
    code = (
        "import sys, celery, celery_ext; app = celery.Celery(broker='redis://127.0.0.1:1', "
        "broker_transport='kombu_delayq.transport:Transport'); "
        "celery_ext.install(app, fast_publish=True, periodic=True); app.producer_pool; "
        f"print(*sorted({OF_OTHERS!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""
