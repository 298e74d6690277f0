"""Celery on RabbitMQ."""

from tests.bench.contender import Contender
from tests.bench.everyone.commands import python, versions
from tests.bench.rabbitmq import RabbitServer, no_rabbitmq, rabbitmq_version

PROGRAM = "tests.bench.contenders.celery_rabbitmq"

RABBITMQ = Contender(
    name="Celery, RabbitMQ",
    versions=lambda: {**versions("celery", "kombu", "amqp"), "RabbitMQ": rabbitmq_version()},
    producer=python(PROGRAM),
    worker=python("celery", "-A", PROGRAM, "worker", "--loglevel=ERROR"),
    consumers=python("tests.bench.contenders.forked", PROGRAM),
    alone=python("celery", "-A", PROGRAM, "worker", "--loglevel=ERROR", "--pool=threads"),
    alone_settings="`--pool=threads`, a thread a core",
    settings=(
        "`celery worker` with its defaults: prefork, a child a core; quorum queues, a topic exchange. Native delayed "
        "delivery: a message passes through up to 28 queues, in which it expires after 1 s, 2 s, 4 s and so on. The "
        "delay is cut to whole seconds; the worker keeps the message for the rest. Messages are written to disk. "
        "Each publish waits for the node's confirmation (`confirm_publish`), as in Celery's example. RabbitMQ with "
        "default settings, without plugins"
    ),
    server=RabbitServer,
    ways=("one",),
    counts=False,
    gaps={"transfer": "RabbitMQ moves the messages itself, when they are due"},
    why_not=no_rabbitmq,
)
