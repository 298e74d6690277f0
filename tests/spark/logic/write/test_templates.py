"""Templates are messages that Celery has made, with gaps for what differs from row to row."""

import json
from typing import Any

import pytest
from celery import signals
from kombu import Exchange, Queue
from kombu.common import Broadcast

from celery_ext.publish.template import Gaps
from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.errors import BadRow
from celery_ext.spark.write.templates import TemplateKey, Templates
from tests.support.spark import apps
from tests.support.spark.apps import make, settings_of, task

PLAIN = TemplateKey("t")


def filled(templates: Templates, key: TemplateKey) -> dict[str, Any]:
    """Returns a message in whose gaps their names are."""
    gaps = Gaps(*(json.dumps(f"<{name}>") for name in Gaps._fields))._replace(headers="", timestamp="")
    form = templates.of(key).form
    first, *others = form.pieces()
    pairs = zip(form.gaps, others, strict=True)
    assert first + "".join(getattr(gaps, gap) + piece for gap, piece in pairs) == form.fill(gaps)
    found: dict[str, Any] = json.loads(form.fill(gaps))
    return found


@pytest.mark.parametrize("name", ["%s", "100%", "%(a)s", "{}", '"', "\\", "ü", "delayq-gap", "null", "a b"])
def test_names_may_have_any_characters(name: str) -> None:
    """Names of tasks and queues are never taken for gaps or formats."""
    message = filled(Templates(AppSettings()), PLAIN._replace(task=name, queue=name))
    assert message["headers"]["task"] == name
    assert message["properties"]["delivery_info"]["routing_key"] == name


def test_a_template_is_made_once() -> None:
    """Rows of the same shape share a template, those of another have their own."""
    templates = Templates(AppSettings())
    assert templates.of(PLAIN) is templates.of(TemplateKey(*PLAIN))
    assert templates.of(PLAIN) is not templates.of(PLAIN._replace(priority=0))


def test_a_queue_that_is_no_list_is_refused() -> None:
    """A broadcast has a queue for each worker, and none that a job could write to."""
    app = apps.make("broadcasting", task_queues=[Broadcast("all"), Queue("celery")])
    with pytest.raises(BadRow, match="is a fanout, whose queues are not lists"):
        Templates(apps.settings_of(app)).of(PLAIN._replace(queue="all"))


def test_an_exchange_without_a_queue_is_refused() -> None:
    """A message that would reach nobody is not sent."""
    events = Queue("events", Exchange("events", type="topic"), routing_key="a.*")
    app = apps.make("routing", task_queues=[events, Queue("celery")], task_routes={"t": apps.TO_NOBODY})
    with pytest.raises(BadRow, match=r"task t goes to several queues or none \(none\)"):
        Templates(apps.settings_of(app)).of(PLAIN)


def test_what_queues_there_are_does_not_depend_on_the_order_of_rows() -> None:
    """A topic exchange hands a message to all queues of the app that want it, used before or not."""
    app = apps.make("topics", task_queues=apps.TWO_OF_A_TOPIC, task_default_queue="all")
    for queues in (("all", "both"), ("both", "all")):
        templates = Templates(apps.settings_of(app))
        for queue in queues:
            key = PLAIN._replace(queue=queue)
            if queue == "all":
                assert templates.of(key).queue == "all"
            else:
                with pytest.raises(BadRow, match=r"\(all, both\)"):
                    templates.of(key)


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
        template = Templates(settings_of(app)).of(TemplateKey("logic.record"))
        assert (template.queue, heard) == ("celery", [])
        result = sent.apply_async()
        assert heard == [("logic.record", result.id)] * 2
    finally:
        for signal in watched:
            signal.disconnect(hear)
