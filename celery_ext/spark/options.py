"""The options of the data source: the only place that knows their names, defaults, units and help."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Self

from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.option_parsers import (
    choice,
    duration,
    duration_or_moment,
    further_headers,
    json_object,
    level_table,
    moment,
    names,
    rate,
    some_duration,
    switch,
    text,
    variable,
    whole,
)
from kombu_delayq.errors import quoted

#: What Spark hands over beside our options. Names are in lower case, as in all that comes from Spark.
_OF_SPARK = frozenset(("checkpointlocation", "queryname", "triggerinterval", "numpartitions"))
#: What it hands over beside the options of a table that is made.
_OF_TABLES = frozenset(("owner", "provider"))
#: Hints for some names that are no options.
_NO_PATH = "is none: tasks are in queues, not in files. Leave the path out, and name a queue with the option queue"
_REASONS = {
    "path": _NO_PATH,
    "paths": _NO_PATH,
    "push_filters": (
        "is none any more, because Spark gave wrong rows to a DataFrame that was used twice: say what is to be read "
        "with the options queue, due_after and due_before"
    ),
}
#: Priorities of a message. Source: kombu.transport.virtual.Channel
PRIORITIES = range(10)


def _option(default: Any, parse: Callable[[str], Any], unit: str, about: str) -> Any:
    return dataclasses.field(default=default, metadata={"parse": parse, "unit": unit, "help": about})


def check_no_table(given: Mapping[str, str]) -> None:
    """Finds out whether Spark wants a table of its catalog, for which it keeps no options.

    Args:
        given: As Spark hands them over.

    Raises:
        InvalidSparkOption: It does, or there is no option at all.
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
            "which broker? No option is given. Spark hands none over for a table of its catalog, which the data source "
            f"celery does not have: {instead}"
        )


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """Which broker. ``dataclasses.fields`` gives each option's default, unit and help."""

    broker_url: str | None = _option(None, text, "", "Broker URL without a password.")
    broker_url_env: str | None = _option(
        None,
        variable,
        "",
        "Name of an environment variable with the broker URL, on the driver and on all executors. A URL with a "
        "password can be given in this way only.",
    )
    broker_transport_options: dict[str, Any] | None = _option(
        None, json_object, "JSON", "Transport options, such as `global_keyprefix`."
    )
    celery_app: str | None = _option(
        None,
        text,
        "",
        "Celery app as of `celery -A`, read once on the driver: routes, default queue, serializer, the options of its "
        "tasks, and the broker, unless another is named.",
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Reads options.

        Args:
            given: As Spark hands them over.

        Raises:
            InvalidSparkOption: Names are unknown, or values wrong; names all of them.
        """
        wrong = list(cls._unknown(given))
        values = {}
        for field in dataclasses.fields(cls):
            found = next((value for name, value in given.items() if name.lower() == field.name), None)
            if found is None:
                continue
            try:
                values[field.name] = field.metadata["parse"](str(found))
            except ValueError as reason:
                shown = "" if field.name.endswith(("url", "url_env", "options")) else f"={quoted(found)}"
                told = "" if shown in str(reason) and shown else str(reason)
                wrong.append(f"{field.name}{shown} {told}")
        if wrong:
            raise InvalidSparkOption(f"options that the data source celery does not take: {'; '.join(wrong)}")
        return cls(**values)

    @classmethod
    def _unknown(cls, given: Mapping[str, str]) -> Iterator[str]:
        known = {field.name for field in dataclasses.fields(cls)}
        for name in given:
            if name.lower() in known | _OF_SPARK:
                continue
            nearest = get_close_matches(name.lower(), sorted(known), n=1, cutoff=0.7)
            is_none = "is none" + (f" (did you mean {nearest[0]}?)" if nearest else "")
            yield f"{name} {_REASONS.get(name.lower(), is_none)}"


@dataclass(frozen=True, kw_only=True)
class WriteOptions(BrokerOptions):
    """How rows become tasks."""

    task: str | None = _option(None, text, "", "Name of the task, for rows whose column `task` does not tell one.")
    queue: str | None = _option(
        None, text, "", "Queue, for rows whose column `queue` does not tell one; else the routes of the app decide."
    )
    priority: int | None = _option(None, whole(0, 9), "0-9", "Priority, for rows without their own.")
    countdown: float | None = _option(
        None, duration, "s, or 10m", "Delay from the moment when the job began, for rows without eta or countdown."
    )
    delay_level: int | None = _option(None, whole(0), "", "Delay level, instead of a countdown.")
    delayq_levels: str | None = _option(None, level_table, "", "Table of the delay levels; else that of the app.")
    expires: float | datetime | None = _option(
        None, duration_or_moment, "s, 10m or ISO 8601", "When a task is not to be run any more; counts as `countdown`."
    )
    time_limit: float | None = _option(None, some_duration, "s", "Hard time limit, for rows without their own.")
    soft_time_limit: float | None = _option(None, some_duration, "s", "Soft time limit, for rows without their own.")
    ignore_result: bool | None = _option(None, switch, "", "Whether results are dropped, for rows that do not tell.")
    headers: dict[str, Any] | None = _option(
        None, further_headers, "JSON", "Message headers, for rows without their own."
    )
    id_columns: tuple[str, ...] | None = _option(
        None,
        names,
        "",
        "Columns whose values, with the name of the task, make the task id, for rows without `task_id`. Without it, "
        "the content of the whole row does, so that equal rows are one task.",
    )
    uuid_columns: tuple[str, ...] | None = _option(None, names, "", "Text columns that reach the task as `uuid.UUID`.")
    job_id: str | None = _option(
        None,
        text,
        "",
        "Name of a batch job. Run again under the same name, it sends what is missing, and nothing once it is "
        "committed. Without it each write is a job of its own. Streams name their jobs by query and batch.",
    )
    delivery: str = _option(
        "direct",
        choice("direct", "staged"),
        "",
        "`direct`: tasks are sent while the job runs. `staged`: when it is committed, and none of an aborted job.",
    )
    spread: float = _option(
        0.0, duration, "s, or 10m", "Window over which the tasks of the job are spread evenly, by their ids."
    )
    max_rate: float = _option(0.0, rate, "messages/s", "Most messages a second for the whole job; 0 is any number.")
    max_queue_depth: int = _option(
        0, whole(1), "messages", "Most messages in a queue, delayed ones among them; the job waits. 0 is any number."
    )
    on_bad_row: str = _option(
        "fail",
        choice("fail", "drop", "dead_letter"),
        "",
        "What becomes of a row that makes no task: it fails the job, is counted and logged, or is also put into "
        "`dead_letter_queue`.",
    )
    dead_letter_queue: str | None = _option(None, text, "", "Queue of dead letters for bad rows.")
    chunk_size: int = _option(200, whole(1, 1000), "messages", "Most messages in one call of Redis.")
    chunk_bytes: int = _option(500_000, whole(1, 10**8), "bytes", "About the most bytes in one call of Redis.")
    write_timeout: float = _option(
        600.0, duration, "s, or 10m", "How long a chunk waits for Redis, for the rate, or for room in its queue."
    )
    job_ttl: float = _option(
        7 * 86400.0,
        some_duration,
        "s, or 7d",
        "How long Redis remembers a job after its last message: until then its stragglers are refused, and a killed "
        "one can be run again.",
    )


@dataclass(frozen=True, kw_only=True)
class ReadOptions(BrokerOptions):
    """Which waiting messages are read, and how."""

    queue: tuple[str, ...] | None = _option(
        None, names, "", "Queues, separated by commas; by default all that hold delayed messages."
    )
    columns: tuple[str, ...] | None = _option(
        None, names, "", "Columns, separated by commas, instead of all; what others need is not fetched or parsed."
    )
    due_after: datetime | None = _option(None, moment, "ISO 8601", "Only messages due then or later.")
    due_before: datetime | None = _option(None, moment, "ISO 8601", "Only messages due earlier.")
    page_size: int = _option(500, whole(1, 5000), "messages", "Most messages that one call of Redis reads.")
    partitions: int | None = _option(
        None,
        whole(1, 10_000),
        "",
        "Number of Spark partitions, of as many messages each; by default one for 50,000 messages. There are no more "
        "of them than messages.",
    )
    replica_url: str | None = _option(
        None, text, "", "URL of a replica of the broker, without a password, that is read instead of it."
    )
    replica_url_env: str | None = _option(
        None, variable, "", "Name of an environment variable with the URL of the replica, as of `broker_url_env`."
    )
