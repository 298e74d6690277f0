"""The options of the data source, each with name, default, unit and help. The reference page is made from them."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Self

from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.option_parsers import (
    chain_text,
    choice,
    duration,
    duration_or_moment,
    further_headers,
    json_object,
    level_table,
    limit_key,
    moment,
    names,
    rate,
    some_duration,
    switch,
    text,
    variable,
    whole,
)
from kombu_delayq.errors import did_you_mean, quoted
from kombu_delayq.message import once

#: Options that Spark adds. Spark gives all names of options in lower case.
_OF_SPARK = frozenset(("checkpointlocation", "queryname", "triggerinterval", "numpartitions"))
#: Options that Spark adds for a table that is created.
_OF_TABLES = frozenset(("owner", "provider"))
#: Own errors for some names that are no options. For others the error names the option that may be meant.
_HINTS = dict.fromkeys(
    ("path", "paths"),
    "is not an option: tasks are in queues, not in files. Leave the path out, and name a queue with the option queue",
)
#: Value of ``if_waiting`` that bulk jobs have beside ``once.MODES``; ``enqueue`` of the scripts knows it.
RESCHEDULE = "reschedule"
#: Values of ``messages``: what is read.
WAITING, READY, DEAD_LETTERS = "waiting", "ready", "dead_letters"
#: Priorities of a message. Source: kombu.transport.virtual.Channel
PRIORITIES = range(10)


def _option(default: Any, parse: Callable[[str], Any], unit: str, about: str) -> Any:
    return dataclasses.field(default=default, metadata={"parse": parse, "unit": unit, "help": about})


def check_no_table(given: Mapping[str, str]) -> None:
    """Checks that Spark does not want a table of its catalog, for which it keeps no options.

    Args:
        given: The options, as Spark gives them.

    Raises:
        InvalidSparkOption: Spark creates or uses a table, or the user gave no option at all.
    """
    names = {name.lower() for name in given}
    instead = (
        "write with df.write.format('celery') or df.writeStream, and read with spark.read.format('celery') or "
        "CREATE TEMPORARY VIEW … USING celery OPTIONS (…)"
    )
    if names >= _OF_TABLES:
        raise InvalidSparkOption(f"the data source celery has no tables (CREATE TABLE … USING celery): {instead}")
    if names <= _OF_SPARK:
        raise InvalidSparkOption(
            "which broker? No option is given. For a table of its catalog Spark passes no options on, and the data "
            f"source celery has no tables: {instead}"
        )


def _with_value(name: str, value: object, reason: str) -> str:
    """Returns how an error names an option: with its value, unless that may be a password or is in the reason."""
    if name.endswith(("url", "url_env", "options")):
        return name
    return f"{name}:" if quoted(value) in reason else f"{name}={quoted(value)}"


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """Options that name the broker. ``dataclasses.fields`` gives default, unit and help of each option.

    Attributes:
        foreign: What an error says of options that only the other direction has.
    """

    foreign: ClassVar[str]
    broker_url: str | None = _option(None, text, "", "Broker URL without a password.")
    broker_url_env: str | None = _option(
        None,
        variable,
        "",
        "Name of an environment variable with the broker URL, on the driver and on all executors: the only way to "
        "give a URL with a password.",
    )
    broker_transport_options: dict[str, Any] | None = _option(
        None, json_object, "JSON", "Transport options, such as `global_keyprefix` and `journal_url`."
    )
    journal_url_env: str | None = _option(
        None,
        variable,
        "",
        "Name of an environment variable with the transport option `journal_url`, on the driver and on all executors, "
        "for a URL with a password.",
    )
    celery_app: str | None = _option(
        None,
        text,
        "",
        "Celery app, as for `celery -A`. The driver reads from it once: routes, default queue, serializer, the "
        "options of its tasks, and the broker unless an option names one.",
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Parses options.

        Args:
            given: The options, as Spark gives them.

        Raises:
            InvalidSparkOption: Some are unknown or wrong. The error lists all of these.
        """
        foreign = [name for name in given if name.lower() in cls._of_others()]
        if foreign:
            raise InvalidSparkOption(f"{', '.join(foreign)}: {cls.foreign}")
        wrong = list(cls._unknown(given))
        values = {}
        for field in dataclasses.fields(cls):
            value = next((value for name, value in given.items() if name.lower() == field.name), None)
            if value is None:
                continue
            try:
                values[field.name] = field.metadata["parse"](str(value))
            except ValueError as reason:
                wrong.append(f"{_with_value(field.name, value, str(reason))} {reason}")
        if wrong:
            raise InvalidSparkOption(f"wrong options for the data source celery: {'; '.join(wrong)}")
        return cls(**values)

    @classmethod
    def _of_others(cls) -> set[str]:
        """Returns the names of options that only the other direction has."""
        others = {field.name for kind in BrokerOptions.__subclasses__() for field in dataclasses.fields(kind)}
        return others - {field.name for field in dataclasses.fields(cls)}

    @classmethod
    def _unknown(cls, given: Mapping[str, str]) -> Iterator[str]:
        known = {field.name for field in dataclasses.fields(cls)}
        for name in given:
            if name.lower() in known | _OF_SPARK:
                continue
            yield f"{name} {_HINTS.get(name.lower()) or f'is not an option{did_you_mean(name, known, str)}'}"


@dataclass(frozen=True, kw_only=True)
class WriteOptions(BrokerOptions):
    """Options that decide how rows become tasks."""

    foreign: ClassVar[str] = "options for reading what waits; what has them, such as a view, cannot be written"
    task: str | None = _option(None, text, "", "Name of the task.")
    queue: str | None = _option(None, text, "", "Queue. Without it the app's routes decide.")
    priority: int | None = _option(None, whole(0, 9), "0-9", "Priority.")
    countdown: float | None = _option(
        None, duration, "s, or 10m", "Delay, counted from the start of the job, for rows without eta or countdown."
    )
    delay_level: int | None = _option(None, whole(0), "", "Delay level, in place of a countdown.")
    delayq_levels: str | None = _option(
        None, level_table, "", "Table of the delay levels. Default: the table of the app."
    )
    delay_chain: str | None = _option(
        None, chain_text, "", "Retry schedule, such as `4m,10m,1h`, in place of that of the task."
    )
    limit: str | None = _option(
        None, limit_key, "", "Key of the limit, such as `account:7`, in place of that of the task; empty for none."
    )
    expires: float | datetime | None = _option(
        None,
        duration_or_moment,
        "s, 10m or ISO 8601",
        "When a task expires: a time, or a duration that counts from the start of the job.",
    )
    time_limit: float | None = _option(None, some_duration, "s", "Hard time limit.")
    soft_time_limit: float | None = _option(None, some_duration, "s", "Soft time limit.")
    ignore_result: bool | None = _option(None, switch, "", "Whether results are dropped.")
    argsrepr: bool = _option(
        True,
        switch,
        "",
        "Whether messages have the texts by which Flower and events show arguments. Without them a message is "
        "shorter and costs less.",
    )
    headers: dict[str, Any] | None = _option(None, further_headers, "JSON", "Message headers.")
    id_columns: tuple[str, ...] | None = _option(
        None,
        names,
        "",
        "Columns whose values, with the name of the task, make the task id, for rows without `task_id`. Default: all "
        "columns, so that equal rows are one task. A row in which all `id_columns` are NULL is a bad row.",
    )
    uuid_columns: tuple[str, ...] | None = _option(
        None, names, "", "Columns of texts or bytes that reach the task as `uuid.UUID`."
    )
    job_id: str | None = _option(
        None,
        text,
        "",
        "Name of a batch job. A job that was killed and runs again under the same name sends the missing rows. "
        "Default: each write is a new job. Streams name their jobs by query and batch.",
    )
    if_waiting: str = _option(
        once.ADD,
        choice(*once.MODES, RESCHEDULE),
        "",
        "What becomes of the task of a row whose id waits in the same queue; any sender may have sent it. "
        f"{once.modes_in_words()}; `{RESCHEDULE}`: as `replace`, and a row whose id does not wait sends nothing. Needs "
        "`id_columns` or a column `task_id`.",
    )
    on_committed: str = _option(
        "fail",
        choice("fail", "skip"),
        "",
        "What to do when an earlier run has committed the job with this `job_id`. `fail`: fail with "
        "`JobCommittedBefore`, before any Spark task starts. `skip`: send nothing, log a warning, and succeed, as a "
        "stream always does.",
    )
    spread: float = _option(
        0.0, duration, "s, or 10m", "Window over which the due times of the job's tasks are spread evenly, by task id."
    )
    max_rate: float = _option(0.0, rate, "messages/s", "Most messages a second for the whole job; 0 is no limit.")
    max_queue_depth: int = _option(
        0,
        whole(0),
        "messages",
        "Most messages in a queue, also delayed ones; the job waits for room. 0 is no limit.",
    )
    on_bad_row: str = _option(
        "fail",
        choice("fail", "drop", "dead_letter"),
        "",
        "What to do with a row that makes no task. `fail`: fail the job. `drop`: count and log the row. "
        "`dead_letter`: also put it into `dead_letter_queue`.",
    )
    dead_letter_queue: str | None = _option(None, text, "", "Queue of dead letters for bad rows.")
    chunk_size: int = _option(200, whole(1, 1000), "messages", "Most messages in one call to Redis.")
    chunk_bytes: int = _option(500_000, whole(1, 10**8), "bytes", "About the most bytes in one call to Redis.")
    write_timeout: float = _option(
        600.0,
        duration,
        "s, or 10m",
        "How long a chunk waits for Redis, or for room in its queue. Waits for the rate do not count.",
    )
    job_ttl: float = _option(
        7 * 86400.0,
        some_duration,
        "s, or 7d",
        "How long Redis remembers a job after its last message, refuses its stragglers, and can run it again.",
    )

    @property
    def asks_once(self) -> bool:
        """Whether rows ask what waits under their ids."""
        return self.if_waiting != once.ADD


@dataclass(frozen=True, kw_only=True)
class ReadOptions(BrokerOptions):
    """Options that decide which messages are read, and how."""

    foreign: ClassVar[str] = (
        "options for writing tasks; what has them, such as a view, has columns of its own, takes rows, and cannot be "
        "read"
    )
    messages: str = _option(
        WAITING,
        choice(WAITING, READY, DEAD_LETTERS),
        "",
        f"Which messages are read. `{WAITING}`: those that are not due. `{READY}`: those in the queues themselves, "
        f"which no worker has taken. `{DEAD_LETTERS}`: those in queues of dead letters.",
    )
    queue: tuple[str, ...] | None = _option(
        None,
        names,
        "",
        "Queues, separated by commas. Default: all queues with delayed messages, or with dead letters.",
    )
    columns: tuple[str, ...] | None = _option(
        None,
        names,
        "",
        "Columns, separated by commas. Default: all. Data that only other columns need is neither fetched nor parsed.",
    )
    due_after: datetime | None = _option(None, moment, "ISO 8601", "Only messages that are due at this time or later.")
    due_before: datetime | None = _option(None, moment, "ISO 8601", "Only messages that are due before this time.")
    page_size: int = _option(500, whole(1, 5000), "messages", "Most messages in one call to Redis.")
    partitions: int | None = _option(
        None,
        whole(1, 10_000),
        "",
        "Number of Spark partitions, which get equal numbers of messages. Default: one for every 50,000 messages. "
        "There are never more partitions than messages.",
    )
    replica_url: str | None = _option(
        None, text, "", "URL, without a password, of a replica to read in place of the broker."
    )
    replica_url_env: str | None = _option(
        None, variable, "", "Name of an environment variable with the URL of the replica, as for `broker_url_env`."
    )
