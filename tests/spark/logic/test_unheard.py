"""What the making of messages leaves alone: the signals of the app, and packages that a web app does not have."""

import subprocess
import sys
from typing import Any

from celery import signals

from celery_ext.spark import task_id
from celery_ext.spark.write.templates import Shape, Templates
from tests.spark.logic.apps import make, settings_of, task


def test_no_signal_tells_of_a_message_that_is_never_sent() -> None:
    """Receivers that an app has connected hear nothing of templates, and hear of messages again afterwards."""
    heard: list[Any] = []

    def hear(sender: Any = None, headers: Any = None, **others: Any) -> None:
        heard.append((sender, headers["id"]))

    app = make("heard", broker_url="memory://")
    sent = task(app)
    watched = (signals.before_task_publish, signals.after_task_publish)
    for signal in watched:
        signal.connect(hear)
    try:
        template = Templates(settings_of(app)).of(Shape("logic.record", None, None, None, None, None, False))
        assert (template.queue, heard) == ("celery", [])
        result = sent.apply_async()
        assert heard == [("logic.record", result.id)] * 2
    finally:
        for signal in watched:
            signal.disconnect(hear)


def test_a_task_id_needs_neither_spark_nor_arrow() -> None:
    """An app that only cancels what a Spark job has enqueued gets the same id without the packages of the extra."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('pyspark', 'pyarrow')))\n"
        "from celery_ext.spark import task_id; print(task_id('orders.close', 7, 'é'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == task_id("orders.close", 7, "é")
