"""A job over both tiers, as driver and Spark tasks run it: each row once, whatever was killed and run again."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from pyspark.sql.pandas.types import from_arrow_schema

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import job
from celery_ext.spark.errors import BadRow, InvalidSparkOption, JobCommittedBefore, StragglerRefused
from celery_ext.spark.far.filesystem import Files
from celery_ext.spark.far.tier import FarTier
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.commit_message import CommitMessage
from celery_ext.spark.write.job import JobWriter
from celery_ext.spark.write.prepare import prepare
from kombu_delayq.store.far_jobs import FarJobs
from tests.support.spark.far import files_of, waiting_ids
from tests.support.spark.jobs import delayed, task_ids
from tests.support.spark.making import batch_of

IDS = [f"id {n}" for n in range(12)]


class Killed(BaseException):
    """The end of a process, as far as the code after it is concerned."""


def part(ids: Sequence[str], **columns: Any) -> pa.RecordBatch:
    """Rows of which each third is due now, each third soon, and each third in days."""
    countdown = [(0.0, 600.0, 3e6)[IDS.index(task_id) % 3] for task_id in ids]
    return batch_of(task_id=list(ids), countdown=countdown, n=[1] * len(ids), **columns)


class Run:
    """One run of a job, with two Spark tasks."""

    def __init__(self, server: PrivateRedis, path: Path, name: str = "j", op: bool = False, **options: Any) -> None:
        given = {"broker_url": server.url, "task": "t", "queue": "q", "far": path, "job_id": name, **options}
        wanted = WriteOptions.parse({name: str(value) for name, value in given.items() if value is not None})
        schema = from_arrow_schema(part(IDS, **({"op": [""] * len(IDS)} if op else {})).schema)
        self._name = name
        self.writer: JobWriter = prepare(wanted, schema, False, name)

    def write(self, ids: Sequence[str] = IDS, **columns: Any) -> list[CommitMessage]:
        """Runs the Spark tasks. Returns their reports."""
        half = len(ids) // 2
        return [self.writer.write(self._name, iter([part(rows, **columns)])) for rows in (ids[:half], ids[half:])]

    def commit(self, reports: Sequence[CommitMessage]) -> None:
        """Commits the job."""
        self.writer.commit(self._name, self.writer.run, reports)

    def abort(self) -> None:
        """Aborts the job."""
        self.writer.abort(self._name, self.writer.run)

    def whole(self, ids: Sequence[str] = IDS) -> None:
        """Runs the Spark tasks, and commits the job."""
        self.commit(self.write(ids))


def everywhere(client: redis.Redis, path: Path) -> Counter[str]:
    """Returns how often each task is in Redis and in the far tier together."""
    found = waiting_ids(path)
    found.update(stored_id.partition("~")[0] for stored_id in delayed(client))
    found.update(task_ids(client))
    return found


@pytest.mark.parametrize("delivery", ["direct", "staged"])
@pytest.mark.parametrize(
    ("where", "name"),
    [(JobWriter, "commit"), (FarJobs, "choose"), (Files, "put"), (Files, "delete"), (FarJobs, "finish"), (None, "")],
    ids=["before the commit", "prepared", "chosen", "named", "not finished", "not killed"],
)
@pytest.mark.parametrize("aborted", [False, True])
def test_a_driver_that_was_killed(
    redis_server: PrivateRedis,
    client: redis.Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    delivery: str,
    where: Any,
    name: str,
    aborted: bool,
) -> None:
    """Wherever a driver stopped, or failed and aborted, the job has each row once over both tiers when it ran again."""
    options = {"delivery": delivery, "on_committed": "skip"}
    first = Run(redis_server, tmp_path, **options)
    with monkeypatch.context() as patched:
        if where is not None:
            patched.setattr(where, name, _killed_at(where, name, 2 if name == "put" else 1))
        try:
            first.whole()
        except Killed:
            assert where is not None
    if aborted and where is not None:
        first.abort()
    for _ in range(2):
        Run(redis_server, tmp_path, **options).whole()
        assert everywhere(client, tmp_path) == Counter(IDS)
    assert len(FarTier.of(str(tmp_path)).manifests()) == 1
    found = job(redis_server.url, "j")
    assert found is not None
    late = len(waiting_ids(tmp_path))
    assert (found.state, found.rows, found.late, found.sent) == ("committed", len(IDS), late, len(IDS) - late)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_committed_job_is_refused(
    redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path, is_forgotten: bool
) -> None:
    """A committed job of the tier is refused, also once Redis has forgotten it."""
    Run(redis_server, tmp_path).whole()
    if is_forgotten:
        client.delete("{delayq}:job:j")
    with pytest.raises(JobCommittedBefore, match=r"job j\b.* committed"):
        Run(redis_server, tmp_path)
    assert everywhere(client, tmp_path) == Counter(IDS)


def test_a_run_that_another_has_committed_meanwhile(
    redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path
) -> None:
    """Two drivers begin a job before either has committed it: the slower one fails."""
    slower = Run(redis_server, tmp_path, far=None)
    Run(redis_server, tmp_path, far=None).whole()
    with pytest.raises(JobCommittedBefore, match=rf"job j was committed at .*, with {len(IDS)} tasks"):
        slower.whole()


def test_a_job_that_still_publishes_is_completed(
    redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that died while it sent staged messages leaves them to the next run, which is not refused."""
    options = {"far": None, "delivery": "staged"}
    with monkeypatch.context() as patched:
        patched.setattr(FarJobs, "publish", _killed_at(FarJobs, "publish", 1))
        with pytest.raises(Killed):
            Run(redis_server, tmp_path, **options).whole()
    Run(redis_server, tmp_path, **options).whole()
    assert everywhere(client, tmp_path) == Counter(IDS)


def _killed_at(where: Any, name: str, call: int) -> Callable[..., Any]:
    """Returns a method that stops in place of a call, counted from 1."""
    method, calls = getattr(where, name), iter(range(1, 100))

    def run(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return method(*args, **kwargs)

    return run


def test_a_run_that_was_overtaken(redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """Of two runs whose tasks are all done, the later commits, and the earlier is refused and names nothing."""
    first = Run(redis_server, tmp_path)
    reports = first.write()
    second = Run(redis_server, tmp_path)
    later = second.write()
    with pytest.raises(StragglerRefused, match="goes on in a later run"):
        first.commit(reports)
    assert waiting_ids(tmp_path) == Counter()
    second.commit(later)
    assert everywhere(client, tmp_path) == Counter(IDS)
    assert FarTier.of(str(tmp_path)).manifests()[0].run == second.writer.run


def test_a_straggler_adds_nothing(redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """A Spark task that ends after the commit has written files that nobody names."""
    run = Run(redis_server, tmp_path)
    copies = [*run.write(), *run.write()]
    run.commit(copies[:2])
    assert everywhere(client, tmp_path) == Counter(IDS)
    assert len(files_of(tmp_path, "data")) > len(FarTier.of(str(tmp_path)).manifests()[0].files)


def test_a_job_that_is_named_writes_no_more_files(
    redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that completes a job whose manifest is there leaves no garbage."""
    with monkeypatch.context() as patched:
        patched.setattr(FarJobs, "finish", _killed_at(FarJobs, "finish", 1))
        with pytest.raises(Killed):
            Run(redis_server, tmp_path).whole()
    before = files_of(tmp_path, "data")
    Run(redis_server, tmp_path).whole()
    assert files_of(tmp_path, "data") == before


def test_a_job_of_the_past(redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """Months later, when Redis has forgotten a job, its manifest still keeps a run from writing anything."""
    Run(redis_server, tmp_path).whole()
    client.flushall()
    Run(redis_server, tmp_path, on_committed="skip").whole()
    assert everywhere(client, tmp_path) == Counter(waiting_ids(tmp_path))
    assert len(waiting_ids(tmp_path)) == 4


def test_an_abort_leaves_nothing_visible(redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """Rows in files of an aborted job do not wait anywhere."""
    run = Run(redis_server, tmp_path)
    run.write(IDS[:6])
    with pytest.raises(BadRow, match="is not a priority"):
        run.write(IDS[6:], priority=[0, 0, 10])
    run.abort()
    assert waiting_ids(tmp_path) == Counter()
    Run(redis_server, tmp_path).whole()
    assert everywhere(client, tmp_path) == Counter(IDS)


def test_a_job_goes_on_with_its_tier(redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """A later run with another horizon, another folder or without one would send rows twice, and is refused."""
    Run(redis_server, tmp_path).write()
    for options in ({"far_horizon": "2d"}, {"far": tmp_path / "other"}):
        with pytest.raises(StragglerRefused, match="has begun with other values of far and far_horizon"):
            Run(redis_server, tmp_path, **options).write()
    with pytest.raises(InvalidSparkOption, match="has begun with the option far"):
        Run(redis_server, tmp_path, far=None)


def test_a_job_without_a_tier_gets_none(redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """A job that has sent late rows to Redis cannot go on with files."""
    Run(redis_server, tmp_path, far=None).write()
    with pytest.raises(StragglerRefused, match="has begun with other values of far and far_horizon, or without them"):
        Run(redis_server, tmp_path).write()


def test_what_cannot_be(redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """A folder that pyarrow cannot reach, and one with a password, are refused before the first row."""
    with pytest.raises(InvalidSparkOption, match="far has a scheme that pyarrow has no file system for"):
        Run(redis_server, tmp_path, far="dbfs:/far")
    with pytest.raises(InvalidSparkOption, match="far has a password or a key") as refused:
        Run(redis_server, tmp_path, far="s3://me:hush@bucket/far")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("killed", [False, True])
def test_a_column_op_cancels_in_both_tiers(
    redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """What a job cancels waits nowhere, whether this job or an earlier one has scheduled it, also if it was killed."""
    Run(redis_server, tmp_path, name="earlier").whole()
    ops = ["enqueue"] * 6 + ["cancel"] * 6
    if killed:
        with monkeypatch.context() as patched:
            patched.setattr(FarJobs, "finish", _killed_at(FarJobs, "finish", 1))
            with pytest.raises(Killed):
                _run_ops(redis_server, tmp_path, ops)
    _run_ops(redis_server, tmp_path, ops)
    due_at_once = IDS[6:12:3]
    assert everywhere(client, tmp_path) == Counter([*IDS[:6] * 2, *due_at_once])


def _run_ops(server: PrivateRedis, path: Path, ops: Sequence[str]) -> None:
    run = Run(server, path, name="ops", op=True)
    run.commit([run.writer.write("ops", iter([part(IDS, op=list(ops))]))])
