"""How the messages of a Spark task go to a real Redis: in chunks, each id once, none from a job that has ended."""

from collections.abc import Iterator
from time import time
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.errors import BrokerUnavailable, StragglerRefused
from celery_ext.spark.job_types import JobRun
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.sender import JobCommitted, Sender, most_in_chunk
from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.conditions import until
from tests.support.servers.proxies import LosesReply
from tests.support.spark.landing import open_store
from tests.support.store.jobs import begun, jobs, joined, now, several


@pytest.fixture
def store(redis_server: PrivateRedis, client: redis.Redis) -> Iterator[DelayStore]:
    """A store on an empty database."""
    with open_store(redis_server) as store:
        yield store


def sender(store: DelayStore, job: JobRun, **options: str) -> Sender:
    return Sender(store, job, WriteOptions.parse(options))


def scripts_run(client: redis.Redis) -> int:
    stats: Any = client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))  # not those that follow a chunk, by their text


@pytest.mark.parametrize(
    ("options", "size", "calls"),
    [({"chunk_size": "10"}, 4, 4), ({"chunk_bytes": "1000"}, 100, 4), ({"chunk_bytes": "1"}, 4, 35), ({}, 4, 1)],
)
def test_chunks_are_bounded_by_number_and_size(
    store: DelayStore, client: redis.Redis, options: dict[str, str], size: int, calls: int
) -> None:
    """35 messages are sent in as few calls as the bounds allow, and all of them arrive in their order."""
    sending = sender(store, begun(store), **options)
    sending.add("q", [now("i0", "x" * size)])  # the script is loaded by now
    sending.flush()
    before = scripts_run(client)
    offers = [now(f"n{n}", f"{n:03}".rjust(size)) for n in range(35)]
    for at in range(0, 35, 6):  # chunks are filled over several batches
        sending.add("q", offers[at : at + 6])
    sending.flush()
    assert scripts_run(client) - before == calls
    assert [each.strip() for each in client.lrange("q", 0, -2)] == [f"{n:03}" for n in reversed(range(35))]
    assert (sending.enqueued, sending.repeated) == (36, 0)


def test_queues_have_chunks_of_their_own(store: DelayStore, client: redis.Redis) -> None:
    """Messages of several queues are collected each for its queue; what does not fill a chunk waits for the end."""
    sending = sender(store, begun(store), chunk_size="3")
    for n in range(4):
        for queue in ("a", "b"):
            sending.add(queue, [now(f"{queue}{n}")])
    until(lambda: (client.llen("a"), client.llen("b")) == (3, 3))
    sending.flush()
    sending.flush()
    assert (client.llen("a"), client.llen("b")) == (4, 4)


def test_dead_letters_go_whatever_waits(store: DelayStore, client: redis.Redis) -> None:
    """A job that only reschedules sends its dead letters all the same."""
    sending = sender(store, begun(store)._replace(if_waiting="reschedule"))
    sending.add("q", [now("i")])
    sending.add("dead", [now("l")], dead=True)
    sending.flush()
    assert (client.llen("q"), client.llen("dead")) == (0, 1)


def test_an_id_is_sent_once_by_all_attempts(store: DelayStore, client: redis.Redis) -> None:
    """Attempts that send the same ids, also twice in a chunk and in another order, send each once."""
    job = begun(store)
    first, second = sender(store, job, chunk_size="4"), sender(store, job, chunk_size="7")
    offers = several(10)
    first.add("q", offers[:6] + offers[:2])
    second.add("q", offers[::-1])
    first.add("q", offers[6:])
    first.flush()
    second.flush()
    assert client.llen("q") == 10
    assert first.enqueued + second.enqueued == 10
    assert first.repeated + second.repeated == 12


ENDS: dict[str, tuple[Any, type[Exception], str]] = {
    "committed": (lambda store, job: jobs(store).finish(job, "committed"), JobCommitted, "j"),
    "aborted": (lambda store, job: jobs(store).finish(job, "aborted"), StragglerRefused, "has been aborted"),
    "superseded": (lambda store, job: begun(store), StragglerRefused, "goes on in a later run"),
    "unknown": (lambda store, job: store.client.flushdb(), StragglerRefused, "is no longer known to Redis"),
}


@pytest.mark.parametrize(("end", "error", "told"), ENDS.values(), ids=ENDS)
def test_a_straggler_sends_nothing(
    store: DelayStore, client: redis.Redis, end: Any, error: type[Exception], told: str
) -> None:
    """Once the job has ended or gone on, its old tasks neither send nor cancel, and are told why."""
    job = begun(store)
    sending = sender(store, job)
    sending.add("q", several(3))
    end(store, job)
    with pytest.raises(error, match=told):
        sending.flush()
    with pytest.raises(error, match=told):
        sending.cancel("q", ["x"])
    assert client.exists("q") == 0


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 200),
        ({"chunk_size": "50"}, 50),
        ({"max_rate": "100"}, 10),
        ({"max_rate": "0.5"}, 1),
        ({"max_rate": "1e6"}, 200),
        ({"max_queue_depth": "7"}, 7),
        ({"max_queue_depth": "7", "max_rate": "10"}, 1),
    ],
)
def test_a_chunk_is_no_larger_than_rate_and_depth_allow(options: dict[str, str], most: int) -> None:
    """A chunk goes as a whole, so that one larger than the depth would never be let through."""
    assert most_in_chunk(WriteOptions.parse(options)) == most


def test_cancelled_tasks_are_taken_back_and_not_sent_again(store: DelayStore, client: redis.Redis) -> None:
    """A cancelled task that waits is removed, and one that the job would send later is never sent."""
    sending = sender(store, begun(store, cancels=True))
    later = f"{(time() + 3600) * 1000!r}"
    sending.add("q", [Offer(f"i{n}", later, 0, str(n)) for n in range(5)])
    sending.cancel("other", ["i1", "i3", "unknown"])
    sending.add("q", [Offer("unknown", later, 0, "x"), Offer("i1", later, 0, "1")])
    sending.flush()
    assert {each.id for each in by_id.browse(store, "q")} == {"i0", "i2", "i4"}
    assert sending.cancelled == 2


def test_many_tasks_are_cancelled_in_several_calls(store: DelayStore) -> None:
    """More ids than one call takes are all cancelled."""
    sending = sender(store, begun(store), chunk_size="1000")
    later = f"{(time() + 3600) * 1000!r}"
    sending.add("q", [Offer(f"i{n}", later, 0, str(n)) for n in range(2500)])
    sending.cancel("q", [f"i{n}" for n in range(2499)])
    assert sending.cancelled == 2499
    assert [each.id for each in by_id.browse(store, "q")] == ["i2499"]


def test_a_broker_that_comes_back_gets_each_message_once() -> None:
    """Messages wait for a server that is restarted in the middle, and none is lost or sent twice."""
    with PrivateRedis("--appendonly", "yes", "--appendfsync", "always") as server, open_store(server) as store:
        job = begun(store)
        sending = sender(store, job, chunk_size="10", write_timeout="60")
        sending.add("q", several(25))
        server.stop()
        server.start()
        sending.add("q", several(60)[25:])
        sending.flush()
        client = server.client()
        until(lambda: client.llen("q") == 60)
        assert sending.enqueued + sending.repeated == 60


def test_one_chunk_is_on_its_way_while_the_next_is_filled(store: DelayStore, client: redis.Redis) -> None:
    """A chunk that Redis has not answered yet keeps nobody from going on; the one after it waits for the answer."""
    sending = sender(store, joined(store, begun(store)), chunk_size="10")
    client.client_pause(60_000, all=False)
    sending.add("q", several(19))
    assert client.llen("q") == 0
    client.client_unpause()
    sending.flush()
    assert client.llen("q") == 19
    assert (sending.enqueued, sending.repeated) == (19, 0)


def test_a_chunk_that_did_not_come_to_redis_is_sent_again(store: DelayStore, client: redis.Redis) -> None:
    """A connection that is lost before Redis has run what was on its way costs no message."""
    sending = sender(store, joined(store, begun(store)), chunk_size="10")
    client.client_pause(60_000, all=False)
    sending.add("q", several(10))
    client.client_kill_filter(_type="normal", skipme=True)
    client.client_unpause()
    sending.add("q", several(35)[10:])
    sending.flush()
    assert client.llen("q") == 35
    assert (sending.enqueued, sending.repeated) == (35, 0)


def test_a_chunk_whose_reply_is_lost_is_not_doubled(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """What Redis has run before the connection was lost is known again."""
    with LosesReply(redis_server.port, b"EVALSHA") as proxy:
        store = DelayStore(redis.Redis(port=proxy.port))
        job = begun(store)
        sending = sender(store, job, chunk_size="10")
        sending.add("q", several(10))
        sending.flush()  # the script is loaded
        proxy.arm()
        sending.add("q", several(45)[10:])
        sending.flush()
        store.close()
    assert proxy.lost == 1
    assert client.llen("q") == 45
    assert (sending.enqueued, sending.repeated) == (35, 10)


def test_one_connection_is_enough(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """Where ``max_connections`` is 1, chunks, the names of queues and cancels share that one."""
    pool = redis.ConnectionPool(port=redis_server.port, max_connections=1)
    store = DelayStore(redis.Redis(connection_pool=pool))
    sending = sender(store, begun(store, cancels=True), chunk_size="10", write_timeout="1s")
    later = f"{(time() + 3600) * 1000!r}"
    offers = [Offer(f"i{n}", later, 0, str(n)) for n in range(35)]
    for queue in "ab":
        sending.add(queue, offers)
    sending.cancel("q", ["i0", "i34"])
    sending.add("b", several(20))
    sending.flush()
    assert (sending.enqueued, sending.repeated, sending.cancelled) == (70, 20, 2)
    store.close()


def test_a_full_redis_is_waited_for_with_a_chunk_on_its_way(store: DelayStore, client: redis.Redis) -> None:
    """What was on its way to a Redis without memory fails the task after ``write_timeout``, and is sent by the next."""
    job = begun(store)
    sending = sender(store, job, chunk_size="10", write_timeout="300ms")
    client.config_set("maxmemory", "1")
    try:
        sending.add("q", several(10))
        with pytest.raises(BrokerUnavailable, match=r"0\.3 s.*write_timeout"):
            sending.add("q", several(30)[10:])
        sending.close()
    finally:
        client.config_set("maxmemory", "0")
    again = sender(store, job, chunk_size="10")
    again.add("q", several(30))
    again.flush()
    assert client.llen("q") == 30
    assert again.enqueued == 30


def test_what_was_on_its_way_is_there_when_a_task_gives_up(store: DelayStore, client: redis.Redis) -> None:
    """A task that fails has sent the chunks that it filled, and holds no connection."""
    sending = sender(store, begun(store), chunk_size="10")
    sending.add("q", several(15))
    sending.close()
    assert client.llen("q") == 10
    sending.close()


def test_a_task_learns_with_the_next_chunk_that_its_job_has_ended(store: DelayStore, client: redis.Redis) -> None:
    """A chunk that comes to Redis after the end of its job is not sent, and the task is told before it sends more."""
    job = begun(store)
    sending = sender(store, job, chunk_size="10")
    sending.add("q", several(10))
    until(lambda: client.llen("q") == 10)
    jobs(store).finish(job, "aborted")
    sending.add("q", several(20)[10:])
    with pytest.raises(StragglerRefused, match="has been aborted"):
        sending.add("q", several(30)[20:])
    assert client.llen("q") == 10
