"""The end of a job on its driver: what it says of what was sent, also while the broker comes and goes."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import job
from celery_ext.spark.errors import InvalidSparkOption, JobCommittedBefore
from celery_ext.spark.job_types import Job
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.job import CommitMessage, JobWriter
from celery_ext.spark.write.writers import StreamWriter, prepare
from tests.support.servers.proxies import Proxy
from tests.support.spark.landing import landed
from tests.support.spark.making import batch_of


class LosesCounts(Proxy):
    """Cuts the connection in place of replies to those who read what Redis remembers of a job.

    Attributes:
        left: How many replies are lost next.
    """

    def __init__(self, target: int) -> None:
        self.left = 0
        self._is_asked = False
        super().__init__(target, on_request=self._watch, on_reply=self._lose)

    def _watch(self, request: bytes) -> bytes:
        self._is_asked = b"HGETALL" in request
        return request

    def _lose(self, reply: bytes) -> bytes | None:
        if not (self._is_asked and self.left):
            return reply
        self.left -= 1
        return None


def test_a_committed_job_waits_for_its_counts(redis_server: PrivateRedis) -> None:
    """All is sent and committed by then, so it does not fail because Redis is away for longer than redis-py tries."""
    batch = batch_of(n=[1, 2, 3])
    with LosesCounts(redis_server.port) as proxy:
        options = WriteOptions.parse({"broker_url": proxy.url, "task": "t", "job_id": "j", "write_timeout": "60s"})
        writer = prepare(options, from_arrow_schema(batch.schema), False, "j")
        report = writer.write("j", iter([batch]))
        proxy.left = 8
        writer.commit("j", writer.run, [report])
        assert proxy.left == 0
    assert len(landed(redis_server)) == 3


class Run:
    """One run of a job, whose Spark tasks get numbers or rows."""

    def __init__(self, server: PrivateRedis, *parts: Any, name: str = "j", **options: str) -> None:
        self._url, self._name = server.url, name
        given = {"broker_url": server.url, "task": "t", "job_id": name, **options}
        self._parts = [part if isinstance(part, pa.RecordBatch) else batch_of(n=list(part)) for part in parts]
        schema = from_arrow_schema(self._parts[0].schema)
        self.writer: JobWriter = prepare(WriteOptions.parse(given), schema, False, name)

    def write(self) -> list[CommitMessage]:
        """Runs one attempt of each Spark task."""
        return [self.writer.write(self._name, iter([part])) for part in self._parts]

    def commit(self, reports: Sequence[CommitMessage] | None = None) -> Job:
        """Commits the job after a last attempt of each Spark task, and asks for it as a caller does."""
        self.writer.commit(self._name, self.writer.run, self.write() if reports is None else reports)
        found = job(self._url, self._name)
        assert found is not None
        return found


@pytest.fixture
def lines(redis_server: PrivateRedis, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What drivers and Spark tasks log, with an empty Redis."""
    caplog.set_level(logging.INFO, "celery_ext.spark")
    return caplog


def test_sent_before_and_twice_in_the_data_are_two_counts(
    redis_server: PrivateRedis, lines: pytest.LogCaptureFixture
) -> None:
    """Rows of one id are one count; rows that a failed attempt or an earlier run has sent are another."""
    first = Run(redis_server, range(10), [*range(5, 15), 14])
    first.write()
    first.writer.abort("j", first.writer.run)
    second = Run(redis_server, range(10), [*range(5, 15), 14, 15])
    second.write()  # attempts whose reports Spark does not take
    found = second.commit()
    assert (found.rows, found.sent, found.sent_before, found.twice) == (22, 16, 16, 6)
    assert "22 rows, 16 messages in all, 16 sent before, 6 twice in the data" in lines.messages[-1]


def test_a_first_run_counts_what_it_sent(redis_server: PrivateRedis, lines: pytest.LogCaptureFixture) -> None:
    """Without repetitions nothing was sent before; bad rows are neither."""
    batch = batch_of(n=[1, 1, 2, 3], priority=[0, 0, 0, 10])
    found = Run(redis_server, batch, on_bad_row="drop").commit()
    assert (found.rows, found.sent, found.sent_before, found.twice, found.bad) == (4, 2, 0, 1, 1)
    assert lines.messages[-1].endswith("4 rows, 2 messages in all, 1 twice in the data, 1 bad")


@pytest.mark.parametrize(("mode", "kept", "replaced"), [("keep", 5, 0), ("replace", 0, 5)])
def test_rows_whose_ids_wait_are_counted_once(
    redis_server: PrivateRedis, lines: pytest.LogCaptureFixture, mode: str, kept: int, replaced: int
) -> None:
    """Of an id that waits one task is left; a row that an earlier attempt has sent is never kept out by itself."""
    options = {"id_columns": "n", "countdown": "1h"}
    Run(redis_server, range(10), name="before", **options).commit()
    first = Run(redis_server, range(5, 15), if_waiting=mode, **options)
    first.write()
    first.writer.abort("j", first.writer.run)
    found = Run(redis_server, range(5, 15), [14], if_waiting=mode, **options).commit()
    assert (found.rows, found.sent, found.kept, found.replaced) == (11, 10 - kept, kept, replaced)
    assert (found.sent_before, found.twice) == (10, 1)
    assert redis_server.client().zcard("delayq:{celery}:due") == 15
    told = "5 kept out by if_waiting" if kept else "5 in place of tasks that waited"
    assert lines.messages[-1].endswith(
        f"11 rows, {10 - kept} messages in all, 10 sent before, 1 twice in the data, {told}"
    )


def test_a_journal_and_if_waiting_are_refused_together(redis_server: PrivateRedis, tmp_path: Path) -> None:
    """Redis alone decides about a row, so that the driver refuses before anything is sent."""
    url = json.dumps({"journal_url": f"sqlite:///{tmp_path}/journal.db"})
    with pytest.raises(InvalidSparkOption, match="if_waiting=keep does not work with a journal"):
        Run(redis_server, [1], if_waiting="keep", id_columns="n", broker_transport_options=url)


def test_a_committed_job_is_refused_unless_the_same_run_is_repeated(
    redis_server: PrivateRedis, lines: pytest.LogCaptureFixture
) -> None:
    """Another run fails at once; an attempt of a Spark task, and a commit whose answer was lost, may come again."""
    run = Run(redis_server, [1, 2, 3])
    before = run.commit()
    run.write()
    assert run.commit() == before
    run.writer.abort("j", run.writer.run)
    assert lines.messages[-1] == "job j is committed; this run does not end it"
    with pytest.raises(JobCommittedBefore, match=r"job j was committed at .*, with 3 tasks; nothing is sent"):
        Run(redis_server, [4])
    skipping = Run(redis_server, [4], on_committed="skip")
    assert skipping.commit() == before
    assert lines.records[-1].levelno == logging.WARNING
    assert lines.messages[-1].endswith("with 3 tasks; this run has sent nothing")


@pytest.mark.parametrize(
    ("ids", "ops", "is_warned"),
    [(["1", "2"], ["cancel", "cancel"], True), (["1", "1"], ["cancel", "enqueue"], False), (["1"], ["enqueue"], False)],
)
def test_a_job_that_has_cancelled_nothing_warns(
    redis_server: PrivateRedis, lines: pytest.LogCaptureFixture, ids: list[str], ops: list[str], is_warned: bool
) -> None:
    """It may have the wrong id columns, unless it has kept back one of its own rows, or should not cancel at all."""
    Run(redis_server, batch_of(n=ids, op=ops), id_columns="n", countdown="1h").commit()
    assert (lines.records[-1].levelno == logging.WARNING) == is_warned
    assert ("nothing cancelled by 2 rows with op=cancel" in lines.messages[-1]) == is_warned


def test_a_job_that_has_cancelled_does_not_warn(redis_server: PrivateRedis, lines: pytest.LogCaptureFixture) -> None:
    """One cancelled task of several is enough: the others may have run."""
    Run(redis_server, batch_of(n=["1"]), id_columns="n", countdown="1h", name="i").commit()
    rows = batch_of(n=["1", "2"], op=["cancel", "cancel"])
    found = Run(redis_server, rows, id_columns="n").commit()
    assert found.cancelled == 1
    assert lines.records[-1].levelno == logging.INFO
    assert lines.messages[-1].endswith("1 cancelled")


def test_the_first_batch_of_a_stream_tells_of_slips(
    redis_server: PrivateRedis, caplog: pytest.LogCaptureFixture
) -> None:
    """A column that is nearly a reserved one is named once, and not for each micro-batch."""
    options = WriteOptions.parse({"broker_url": redis_server.url, "task": "t"})
    writer = StreamWriter(prepare(options, from_arrow_schema(batch_of(etas=[1]).schema), False), "")
    for batch in range(3):
        writer.commit([], batch)
    assert caplog.messages == ["column etas becomes an argument of the task; did you mean eta?"]
