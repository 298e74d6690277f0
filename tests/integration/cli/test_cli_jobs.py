"""``delayq jobs``: what Redis remembers of bulk jobs is listed, shown and dropped."""

from datetime import datetime

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.bulk_jobs import JobCounts, JobRun
from tests.support.commands.shell import lines, run, terminal
from tests.support.slots import KEYS
from tests.support.store.jobs import begun, several


@pytest.fixture
def store(client: redis.Redis) -> DelayStore:
    """A store on an empty database."""
    return DelayStore(client, KEYS)


def committed(store: DelayStore, name: str) -> JobRun:
    """Commits a job of three messages in two queues, and one that came again."""
    job = begun(store, name)
    store.jobs.enqueue("a", job, several(2))
    store.jobs.enqueue("b", job, [*several(1, "z"), *several(1, "z")])
    store.jobs.finish(job, "committed", JobCounts(rows=5, bad=1, offered=5, fresh=2))
    return job


def test_jobs_are_listed(redis_server: PrivateRedis, store: DelayStore) -> None:
    """Each job has its state, its counts, and when it was written; those that a pattern and a state choose are left."""
    committed(store, "night-1")
    running = begun(store, "night-2")
    store.jobs.finish(begun(store, "day"), "aborted")
    text = run(redis_server, "jobs", "list").stdout.splitlines()
    assert text[0].split()[:5] == ["ID", "STATE", "ROWS", "SENT", "REPEATED"]
    assert [line.split()[0] for line in text[1:]] == ["day", "night-2", "night-1"]
    assert text[3].split()[1:7] == ["committed", "5", "3", "1", "1", "0"]
    assert text[3].endswith("a, b")
    found = {line["id"]: line for line in lines(redis_server, "jobs", "list")}
    assert {name: line["state"] for name, line in found.items()} == {
        "night-1": "committed",
        "night-2": "running",
        "day": "aborted",
    }
    one = found["night-1"]
    assert (one["rows"], one["sent"], one["repeated"], one["bad"], one["queues"]) == (5, 3, 1, 1, ["a", "b"])
    assert datetime.fromisoformat(one["begun"]) <= datetime.fromisoformat(one["committed"])
    assert (found["night-2"]["run"], found["night-2"]["committed"]) == (running.run, None)
    chosen = lines(redis_server, "jobs", "list", "night-*", "--state", "running")
    assert [line["id"] for line in chosen] == ["night-2"]
    assert run(redis_server, "jobs", "list", "week*").stderr == "Redis remembers no such bulk job\n"


def test_nothing_is_remembered(redis_server: PrivateRedis, store: DelayStore) -> None:
    """Without jobs the list is empty, and says why."""
    assert lines(redis_server, "jobs", "list") == []
    assert run(redis_server, "jobs", "list").stderr == "Redis remembers no bulk job\n"


def test_more_jobs_than_are_read_at_once(redis_server: PrivateRedis, store: DelayStore) -> None:
    """Each of some hundred jobs is listed once."""
    for n in range(450):
        store.jobs.begin(JobRun(f"j{n}", n + 1, 600_000))
    assert sorted(line["run"] for line in lines(redis_server, "jobs", "list")) == list(range(1, 451))


def test_a_job_is_shown_queue_by_queue(redis_server: PrivateRedis, store: DelayStore) -> None:
    """All about a job is shown, and a name that is not known is told apart."""
    committed(store, "nightly")
    result = run(redis_server, "jobs", "show", "nightly", "nope", code=1)
    assert result.stderr == "Redis remembers no job 'nope'\n"
    head, parts = result.stdout.split("\n\n")
    shown = dict(line.split(maxsplit=1) for line in head.splitlines())
    assert (shown["id"], shown["rows"], shown["sent"]) == ("nightly", "5", "3")
    assert shown["repeated"] == "1; of the run that was committed 1 sent before, 2 twice in the data"
    assert [line.split() for line in parts.splitlines()] == [
        ["QUEUE", "STATE", "SENT", "REPEATED", "CANCELLED"],
        ["a", "committed", "2", "0", "0"],
        ["b", "committed", "1", "1", "0"],
    ]
    [fields] = lines(redis_server, "jobs", "show", "nightly")
    assert (fields["sent_before"], fields["twice"]) == (1, 2)
    assert [(part["queue"], part["sent"], part["repeated"]) for part in fields["parts"]] == [("a", 2, 0), ("b", 1, 1)]


def test_a_dropped_job_can_be_written_anew(redis_server: PrivateRedis, store: DelayStore) -> None:
    """Its messages stay, and a new run sends all rows."""
    committed(store, "nightly")
    result = run(redis_server, "jobs", "drop", "nightly", code=2)
    assert "rows may be sent again" in result.stderr
    assert run(redis_server, "jobs", "drop", "--yes", "nightly", "nope", code=1).stdout == "job nightly: dropped\n"
    assert run(redis_server, "jobs", "drop", "--yes", "nightly", code=1).stderr == "Redis remembers no job 'nightly'\n"
    assert store.client.llen("a") == 2
    assert store.jobs.enqueue("a", begun(store, "nightly"), several(2)).fresh == 2
    [note] = store.audit.recent()
    assert (note.action, note.count, note.what) == ("jobs drop", 1, {"ids": ["nightly"], "outcomes": {"dropped": 1}})


def test_a_job_that_may_still_be_written_is_not_dropped(redis_server: PrivateRedis, store: DelayStore) -> None:
    """It takes ``--force``, and the question says what is lost."""
    job = begun(store, "nightly", staged=True)
    store.jobs.enqueue("a", job, several(2))
    result = run(redis_server, "jobs", "drop", "--yes", "nightly", code=1)
    assert result.stderr.startswith("job 'nightly' is running, and was last written ")
    assert "--force" in result.stderr
    result = run(redis_server, "jobs", "drop", "--force", "nightly", code=2)
    assert "2 staged messages are lost" in result.stderr
    assert "may still be written" in result.stderr
    assert lines(redis_server, "jobs", "drop", "--force", "--yes", "nightly") == [{"id": "nightly", "dropped": True}]
    assert store.jobs.enqueue("a", job, several(2)).word == "unknown"
    [note] = store.audit.recent()
    assert note.what["staged_messages"] == 2


def test_the_question_is_asked_in_a_terminal(redis_server: PrivateRedis, store: DelayStore) -> None:
    """A no changes nothing."""
    committed(store, "nightly")
    with terminal(redis_server, "jobs", "drop", "nightly") as shell:
        shell.read_until("[y/N]")
        shell.type("n")
        assert shell.wait() == 1
    assert store.jobs.find("nightly") is not None
