"""``delayq convert``: what it moves, what it says, and what becomes of it when it is broken off."""

import json

import pytest
import redis

from celery_ext.cli.commands.convert import Conversion, convert_queue
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.waiting import by_id
from kombu_delayq.options import LAYOUTS, Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.redisson_layout import RedissonKeys
from tests.support.commands.shell import lines, run
from tests.support.store.consuming import lives
from tests.support.store.keyspace import FUTURE_MS, waiting
from tests.support.store.tuned import tuned
from tests.support.workers.harness import Proj
from tests.support.workers.held import KEYS

BOTH_WAYS = pytest.mark.parametrize(("old", "new"), [LAYOUTS, LAYOUTS[::-1]])


def store_of(raw_client: redis.Redis, layout: str) -> DelayStore:
    return DelayStore(raw_client, KEYS, options=Options(layout=layout))


@BOTH_WAYS
def test_it_moves_all_and_says_so(broker: PrivateRedis, raw_client: redis.Redis, old: str, new: str) -> None:
    """Queues are named with what was moved, or with that there is nothing; an unknown one on stderr, with code 1."""
    source = store_of(raw_client, old)
    source.delivery.offer("q", *(waiting(f"i{n}") for n in range(1234)))
    source.delivery.offer("r\x1b", waiting("i"))
    result = run(broker, "convert", "q", "nope", "r\x1b", "q", "--to", new, code=1)
    assert result.stdout.splitlines() == [
        f"queue q: 1,234 messages moved to the layout '{new}'",
        f"queue r\\x1b: 1 message moved to the layout '{new}'",
    ]
    assert result.stderr == "queue 'nope' holds no delayed messages, and is not known\n"
    assert (source.queues.size("q"), store_of(raw_client, new).queues.size("q")) == (0, 1234)
    assert run(broker, "convert", "q", "--to", new).stdout == f"queue q: nothing to move to the layout '{new}'\n"
    found = {"queue": "q", "to": old, "moved": 1234, "lost": 0, "came": 0, "stranded": 0}
    assert lines(broker, "convert", "q", "--to", old) == [found]
    assert lines(broker, "convert", "nope", "--to", old, code=1) == []


def test_a_fleet_that_is_not_at_rest_is_warned_of(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """Known consumers and a leading transfer worker are named on stderr; the messages are moved all the same."""
    store = DelayStore(raw_client, KEYS, options=tuned(lease_ttl=600))
    store.delivery.offer("q", waiting("i"))
    assert run(broker, "convert", "q", "--to", "redisson").stderr == ""
    lives(store)
    said = run(broker, "convert", "q", "--to", "hash").stderr
    assert said.startswith("the fleet is not at rest: 1 consumer is known.")
    store.leases.lead("me")
    result = run(broker, "convert", "q", "--to", "redisson")
    assert "1 consumer and a leading transfer worker are known" in result.stderr
    assert result.stdout == "queue q: 1 message moved to the layout 'redisson'\n"


def test_messages_of_redisson_alone_are_moved_and_known(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """A queue that only another client has used is found by its name, and known to transfer workers from then on."""
    entry = b"\x08" + b"12345678" + (5).to_bytes(8, "little") + b"hello"
    keys = Keys()
    raw_client.zadd(RedissonKeys(keys).timeout("jvm"), {entry: FUTURE_MS})
    raw_client.rpush(RedissonKeys(keys).listed("jvm"), entry)
    assert run(broker, "convert", "jvm", "--to", "hash").stdout == "queue jvm: 1 message moved to the layout 'hash'\n"
    store = store_of(raw_client, "hash")
    assert store.queues.names() == ["jvm"]
    assert [each.body for each in by_id.browse(store, "jvm")] == [b"hello"]


def test_what_cannot_be_moved_is_told(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """Index entries without a body, and bodies without an entry, are counted on stderr, and the exit code is 1.

    What the command says of the latter is what helps.
    """
    source = store_of(raw_client, "hash")
    body = json.dumps(
        {
            "body": "",
            "headers": {"eta": "2100-01-01T00:00:00+00:00"},
            "properties": {"delivery_tag": "", "delivery_info": {}},
        }
    )
    source.delivery.offer("q", *(waiting(f"i{n}", FUTURE_MS + n, body) for n in range(4)))
    raw_client.hdel(source.keys.bodies("q"), "i1")
    raw_client.zrem(source.keys.due("q"), "i2")
    result = run(broker, "convert", "q", "--to", "redisson", code=1)
    assert result.stdout == "queue q: 2 messages moved to the layout 'redisson'\n"
    assert "queue 'q': 1 index entry without a body is removed; this message is lost" in result.stderr
    assert "queue 'q': 1 body without an index entry is left in the layout 'hash'" in result.stderr
    assert "`delayq -o layout=hash repair` finds the due times" in result.stderr
    run(broker, "-o", "layout=hash", "repair", "--yes", "q")
    assert (
        run(broker, "convert", "q", "--to", "redisson").stdout == "queue q: 1 message moved to the layout 'redisson'\n"
    )


@BOTH_WAYS
def test_messages_that_come_meanwhile_are_moved_and_told(raw_client: redis.Redis, old: str, new: str) -> None:
    """Who still publishes in the old form is noticed by the messages that come while others are moved."""
    source, store = store_of(raw_client, old), store_of(raw_client, new)
    source.delivery.offer("q", *(waiting(f"i{n}") for n in range(250)))
    work = Conversion("q", new)
    steps = convert_queue(store, work)
    moved = next(steps)
    source.delivery.offer("q", waiting("k"), waiting("l"))
    store.delivery.offer("q", waiting("m"))
    assert moved + sum(steps) == 252
    assert work == Conversion("q", new, moved=252, came=2)
    assert store.queues.convertible("q") == 0


@pytest.mark.wide
@pytest.mark.nightly
def test_an_app_whose_option_names_the_other_form_is_told(proj: Proj) -> None:
    """`celery -A proj delayq convert` knows in which layout the app goes on, and says what is to be set."""
    proj.send("record", countdown=3600, task_id="i")
    proj.conf["broker_transport_options"] = {"layout": "hash"}
    done = {}
    for to in ("redisson", "hash"):
        args = ("-m", "celery", "-A", "proj", "delayq", "convert", "celery", "--to", to)
        done[to] = proj.program(*args)
        assert done[to].stdout == f"queue celery: 1 message moved to the layout '{to}'\n"
    assert "the app has the transport option layout='hash'" in done["redisson"].stderr
    assert done["hash"].stderr == ""


def test_a_full_redis_ends_it_in_words(own_server: PrivateRedis) -> None:
    """Redis refuses to move what it has no memory for: the command says so, and goes on once there is room."""
    client = redis.Redis(port=own_server.port)
    store = store_of(client, "hash")
    store.delivery.offer("q", *(waiting(f"i{n}", body="x" * 5000) for n in range(500)))
    client.config_set("maxmemory", 1_000_000)
    result = run(own_server, "convert", "q", "--to", "redisson", code=1)
    assert "maxmemory" in result.stderr
    assert "stopped; 0 messages are moved" in result.stderr
    client.config_set("maxmemory", 0)
    run(own_server, "convert", "q", "--to", "redisson")
    assert (store.queues.convertible("q", "hash"), store.queues.size("q")) == (500, 0)
