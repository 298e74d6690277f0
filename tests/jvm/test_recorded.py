"""The session of ``tests/support/store/recorded.py``, with which ours is compared, is that of the real Redisson."""

from collections.abc import Callable

import redis

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.jvm.redisson import Jvm
from tests.support.store.recorded import CHANNEL, LISTED, MESSAGES, RECORDED, TIMEOUT, Command, Names, Recorder, Seen

#: How Redisson looks for the entry of a message that is to be removed: one after the other.
SEARCH = {"LLEN", "LINDEX"}
#: The delay of the messages, in s: longer than the recorded one, so that none is due by itself meanwhile.
FAR_S = 3600


def test_redisson_does_what_was_recorded(jvm: Jvm, client: redis.Redis, redis_server: PrivateRedis) -> None:
    """Start, five offers, their transfer and a removal by Redisson are, command by command, what was recorded."""
    names, did = Names(), dict[str, list[Command]]()
    with Recorder(client, redis_server.port) as monitor:

        def step(name: str, act: Callable[[], object], last: bytes) -> None:
            heard: list[Seen] = []
            monitor.heard()
            act()

            def is_through() -> bool:
                heard.extend(monitor.heard())
                return any(last in (seen.parts[0], seen.parts[-1]) for seen in heard)

            until(is_through)
            commands = [each for each in names.named(heard) if each[0] not in SEARCH]
            did[name] = [tuple("LIMIT" if part == "limit" else part for part in each) for each in commands]

        def offer(number: int) -> None:
            jvm.offer("q", MESSAGES[number - 1], FAR_S)

        step("start", lambda: jvm.ask("start", queue="q"), b"WITHSCORES")
        for number in range(1, 6):
            step(f"offer {number}", lambda number=number: offer(number), b"ZRANGE")  # type: ignore[misc]
        raw = redis.Redis(port=redis_server.port)
        # The time has come; of equal due times Redisson's entries come in any order.
        raw.zadd(TIMEOUT, {entry: due for due, entry in enumerate(raw.lrange(LISTED, 0, -1), 1)})
        step("transfer", lambda: raw.publish(CHANNEL, 1), b"ZREM")
        did["transfer"].remove(("PUBLISH", CHANNEL, "1"))  # ours
        step("offer 6", lambda: offer(6), b"ZRANGE")
        step("remove", lambda: jvm.ask("remove", queue="q", message=MESSAGES[5]), b"ZREM")
        jvm.ask("stop", queue="q")
    assert did == RECORDED
    assert not client.exists(TIMEOUT, LISTED)
