"""Every row that ``tests.bench.jobs`` yields, described."""

from dataclasses import dataclass
from math import inf
from typing import Literal


@dataclass(frozen=True)
class Measure:
    """What a row's values are.

    Attributes:
        key: Its name in samples and gaps.
        title: Its name in a heading or a column. Like ``how``, it leaves open what ``facts.numbers`` returns.
        unit: Of its values; empty for a share.
        better: Whether less or more of it is better; None where it is not compared.
        digits: Decimals shown of values below 100. Greater ones are shown with three significant digits.
        how: How it is measured, in a sentence.
        by: What its sizes are; empty where it has none.
        least: What is less counts as this.
        only: Who alone has it; empty for all contenders.
        alike: Values that differ by no more are taken for equal.
        times: By what values are multiplied when they are shown.
        follows: A measure without which this one has no value either.
    """

    key: str
    title: str
    unit: str
    better: Literal["less", "more"] | None
    digits: int
    how: str
    by: str = ""
    only: tuple[str, ...] = ()
    least: float = -inf
    alike: float = 0.0
    times: float = 1.0
    follows: str = ""


WAITING = "messages waiting"
CONSUMERS = "idle consumers"
FORMS = ("kombu-delayq, hash", "kombu-delayq, list")
#: Celery on Redis; the names of Celery's other transports begin so.
STOCK = "Celery"


def _enqueue(way: str, words: str) -> tuple[Measure, ...]:
    family = f"enqueue_{way}"
    return (
        Measure(
            family,
            f"Enqueue with a delay, {words}",
            "/s",
            "more",
            0,
            "One producer, in one process, enqueues tasks that are due later. The clock runs during its calls only.",
            by=WAITING,
        ),
        Measure(
            f"{family}_cpu",
            f"The producer's CPU time for a task, {words}",
            "µs",
            "less",
            1,
            "CPU time of the producer's process during these calls, divided by the tasks.",
            by=WAITING,
        ),
        Measure(
            f"{family}_reads",
            f"Round trips for a task, {words}",
            "",
            "less",
            2,
            "How often Redis read from a connection meanwhile (`total_reads_processed`), divided by the tasks. "
            "Commands sent together are one read, or a few if they are long.",
            alike=0.01,
            by=WAITING,
        ),
    )


def _late(key: str, words: str) -> tuple[Measure, ...]:
    def late(which: str, title: str, better: Literal["less", "more"] | None, how: str) -> Measure:
        return Measure(f"{key}_{which}", title, "ms", better, 1, how, alike=0.5)

    how = "Time from the due time to the first line of the task, which the task itself writes down"
    return (
        late("min", f"{words}: min", None, f"{how}. min is the least of all tasks; below 0 is early."),
        late("p50", f"{words}: p50", "less", "p50 is the median of these times."),
        late("p99", f"{words}: p99", "less", "p99 is the time that one task in 100 exceeds."),
        late("max", f"{words}: max", "less", "max is the longest of all tasks."),
        Measure(
            f"{key}_begun",
            f"{words}: begun",
            "%",
            "more",
            1,
            "Begun is the share of the tasks that had begun {grace_s} s after the last due time.",
            alike=0.0005,
            times=100,
        ),
    )


def _script(key: str, title: str, unit: str, how: str) -> Measure:
    return Measure(f"script_{key}", title, unit, None, 1, how, by=WAITING, only=FORMS)


_ALL: tuple[Measure, ...] = (
    *_enqueue("one", "one at a time"),
    *_enqueue("bulk", "in bulk"),
    Measure(
        "kept",
        "Memory for a waiting message",
        "bytes",
        "less",
        0,
        "Growth of the server while the backlog was enqueued, divided by its messages: Redis's `used_memory`, the size "
        "of the database, or the memory of RabbitMQ's node and its files.",
        by=WAITING,
    ),
    Measure(
        "worker",
        "Memory of the worker for a waiting message",
        "bytes",
        "less",
        0,
        "Growth of the resident memory of a running worker and its children while tasks were enqueued that are due in "
        "an hour, divided by the tasks; 0 if it shrank.",
        alike=20.0,
        least=0.0,
        by=WAITING,
    ),
    Measure(
        "transfer",
        "Transfer of an overdue backlog",
        "/s",
        "more",
        0,
        "All messages are overdue; their due times were random. Then the process that moves them is started, a worker "
        "if the contender has no such process, and is watched for {transfer_s} s from its first message on. Where the "
        "producer cannot tell how many still wait, a message counts as moved when its task begins.",
        by=WAITING,
    ),
    Measure(
        "transfer_cpu",
        "The server's CPU time for a message transferred",
        "µs",
        "less",
        1,
        "CPU time of the server from the start of that process until the end, divided by the messages moved.",
        by=WAITING,
    ),
    Measure(
        "longest",
        "Longest that Redis was blocked meanwhile",
        "ms",
        "less",
        1,
        "The longest command, script or transaction by Redis's `SLOWLOG` and latency monitor. They go by the clock, "
        "which includes the time that other processes take of the cores. Calls below 1 ms do not count.",
        by=WAITING,
        follows="transfer",
    ),
    Measure(
        "cancel",
        "Cancel a random waiting message: median",
        "ms",
        "less",
        2,
        "The producer cancels up to {cancelled} random messages one by one, for at most {cancel_s} s, through the "
        "contender's API.",
        alike=0.05,
        by=WAITING,
    ),
    Measure(
        "cancel_worst",
        "Cancel a random waiting message: longest",
        "ms",
        "less",
        1,
        "The longest of these calls.",
        alike=0.5,
        by=WAITING,
    ),
    *_late("poisson", "{per_s}/s"),
    *_late("burst", "{burst} at once"),
    Measure(
        "alone",
        "Tasks of one worker process",
        "/s",
        "more",
        0,
        "{alone} tasks wait when the worker starts, fewer where enqueueing takes long. The rate is that from the first "
        "task that begins to the last one, or to the last one within {alone_s} s. The worker is one process, and runs "
        "as many tasks at once as its [configuration](#contenders) says.",
    ),
    Measure(
        "alone_cpu",
        "The server's CPU time for a task of one worker process",
        "µs",
        "less",
        1,
        "CPU time of the server in the same time, divided by the tasks: what it takes to hand out a message and to "
        "forget it.",
    ),
    Measure(
        "idle_commands",
        "Commands of idle consumers",
        "/s",
        "less",
        1,
        "Commands in {idle_s} s while consumers had nothing to do: Redis's `total_commands_processed`, which includes "
        "the calls of scripts, or the database's transactions.",
        alike=0.5,
        by=CONSUMERS,
    ),
    Measure(
        "idle_cpu",
        "The server's CPU for idle consumers",
        "% of a core",
        "less",
        2,
        "CPU time of the server in the same {idle_s} s.",
        alike=0.1,
        by=CONSUMERS,
    ),
    Measure(
        "quiet_commands",
        "Commands of idle consumers without gossip",
        "/s",
        "less",
        1,
        "The same for Celery's workers started with `--without-gossip --without-mingle --without-heartbeat`, which "
        "leaves out the messages between workers.",
        alike=0.5,
        by=CONSUMERS,
        only=(*FORMS, STOCK),
    ),
    Measure(
        "quiet_cpu",
        "The server's CPU for idle consumers without gossip",
        "% of a core",
        "less",
        2,
        "CPU time of Redis at the same time.",
        alike=0.1,
        by=CONSUMERS,
        only=(*FORMS, STOCK),
    ),
    Measure(
        "offer_cpu",
        "The server's CPU time for a message enqueued",
        "µs",
        "less",
        1,
        "CPU time of the server while the backlog was enqueued, divided by its messages.",
        by=WAITING,
    ),
    Measure(
        "path_cpu",
        "The server's CPU time from offer to queue",
        "µs",
        "less",
        1,
        "The sum of the CPU time for a message enqueued and for a message transferred.",
        by=WAITING,
        follows="transfer",
    ),
    Measure(
        "limit",
        "Bare `LPUSH`",
        "µs",
        None,
        1,
        "CPU time of Redis for a message like kombu-delayq's, pushed to a list, 200 in a pipeline.",
    ),
    _script(
        "offer", "Redis's CPU time for a message of 1,000 bytes offered", "µs", "Offered in calls of 200 messages."
    ),
    _script(
        "transfer",
        "Redis's CPU time for a message of 1,000 bytes transferred",
        "µs",
        "All are due, at random times within an hour. One call of the script after the other moves them.",
    ),
    _script("longest", "Redis's CPU time for the longest of these calls", "ms", "From one call's end to the next's."),
    Measure(
        "script_limit",
        "Bare `LPUSH`",
        "µs",
        None,
        1,
        "CPU time of Redis for a message of 1,000 bytes, pushed to a list, 200 in a pipeline.",
    ),
    Measure("limit_bytes", "Size of a message", "bytes", None, 0, "Length of such a message."),
)
#: By their keys, in the order of the page.
MEASURES: dict[str, Measure] = {measure.key: measure for measure in _ALL}
