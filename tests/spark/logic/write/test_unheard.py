"""What the making of messages leaves alone: the signals of the app."""

from typing import Any

from celery import signals

from celery_ext.spark.write.templates import TemplateKey, Templates
from tests.support.spark.apps import make, settings_of, task


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
        template = Templates(settings_of(app)).of(TemplateKey("logic.record", None, None, None, None, None, False))
        assert (template.queue, heard) == ("celery", [])
        result = sent.apply_async()
        assert heard == [("logic.record", result.id)] * 2
    finally:
        for signal in watched:
            signal.disconnect(hear)
