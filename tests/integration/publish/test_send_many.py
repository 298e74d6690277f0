"""``send_many``: pages on their way to Redis, what goes wrong with them, and what workers make of them."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from kombu import Queue
from kombu.exceptions import EncodeError, OperationalError

from celery_ext import Call, cancel, select, send_many
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq import DelayTooLong
from tests.support.conditions import until
from tests.support.servers.proxies import Proxy
from tests.support.workers.harness import MakeProj, Proj

HOUR = timedelta(hours=1)
RECORD = "proj.record"
#: Due times are rounded to µs several times on their way; this is more.
ROUNDING_S = 0.001


def messages(proj: Proj) -> Counter[str]:
    """Counts the messages of each id that are in the queue or wait."""
    waiting = Counter(each.id for each in select(proj.app, queues="celery"))
    return waiting + Counter({"now": int(proj.server.client().llen("celery"))})


@pytest.mark.journey
@pytest.mark.both_layouts
def test_workers_run_what_is_sent_in_bulk(proj: Proj) -> None:
    """Calls with and without a delay run once, none too early, and their results come under the ids that were told."""
    ids: list[str] = []
    due = time.time() + 2
    eta = datetime.fromtimestamp(due, UTC)
    calls = [Call((n,), eta=eta if n % 2 else None) for n in range(499)]
    calls.append(Call((499,), countdown=600))  # to be cancelled, however long sending takes
    assert send_many(proj.app, RECORD, calls, on_sent=ids.extend) == 500
    assert len({UUID(each) for each in ids}) == 500
    assert {UUID(each).version for each in ids} == {4}
    cancelled = ids.pop(499)
    assert cancel(proj.app, cancelled) == "cancelled"
    proj.worker()
    runs = proj.await_runs(499)
    assert {run["id"]: run["value"] for run in runs} == dict(zip(ids, range(499), strict=True))
    assert all(run["at"] >= due for run in runs if run["value"] % 2)
    assert proj.app.AsyncResult(ids[7]).get(timeout=30) == 7
    assert len(proj.runs()) == 499


def test_pages_are_sent_while_calls_are_read(proj: Proj) -> None:
    """A page is sent before the next is read, and then told; pages end where they are full of calls or of bytes."""
    read = 0

    def all_sent() -> bool:
        return proj.delayed() == read

    def calls(count: int, size: int) -> Iterator[Call]:
        nonlocal read
        for n in range(count):
            if n and n % full == 0:  # the page that ends here is on its way
                until(all_sent)
            read += 1
            yield Call(("x" * size,), countdown=600)

    def note(ids: list[str]) -> None:
        pages.append(len(ids))
        assert sum(pages) == proj.delayed()
        assert read - sum(pages) <= full

    pages: list[int] = []
    full = 100
    assert send_many(proj.app, RECORD, calls(450, 10), on_sent=note) == 450
    assert pages == [100, 100, 100, 100, 50]
    full = 2
    assert send_many(proj.app, RECORD, calls(20, 100_000), on_sent=note) == 20
    assert pages[5:] == [2] * 10
    assert send_many(proj.app, RECORD, iter(())) == 0


def test_a_countdown_begins_when_its_call_is_read(proj: Proj) -> None:
    """The countdown of a call begins after the call is read, and before the next call of the page is read."""
    read: list[float] = []
    made: list[float] = []

    def calls() -> Iterator[Call]:
        for n in range(2):
            until(lambda: not made or time.time() > made[-1] + 10 * ROUNDING_S)
            read.append(time.time())
            yield Call((n,), countdown=600)
            made.append(time.time())

    assert send_many(proj.app, RECORD, calls()) == 2
    first, second = (task.due.timestamp() - 600 + ROUNDING_S for task in select(proj.app, queues="celery"))
    assert read[0] <= first <= read[1] <= second


def _failing(error: type[BaseException] = KeyError, count: int = 1) -> Iterator[Call]:
    yield from (Call((n,), countdown=60) for n in range(count))
    raise error("no more")


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "arguments that the task does not take": (Call((1, 2)), TypeError, "positional argument"),
    "an argument that has no JSON": (Call((object(),)), EncodeError, "not JSON serializable"),
    "args that are none": (Call({1}), TypeError, "must be a list or tuple"),  # type: ignore[arg-type]
    "kwargs that are none": (Call((), [("value", 1)]), TypeError, "mapping"),  # type: ignore[arg-type]
    "a delay that is too long": (Call((1,), countdown=7201), DelayTooLong, "max_delay"),
    "an eta that is too far away": (Call((1,), eta=datetime.now(UTC) + 72 * HOUR), DelayTooLong, "max_delay"),
    "two times": (Call((1,), countdown=1, eta="2044-01-01"), ValueError, "both countdown=1 and eta="),
    "a countdown after the year 9999": (Call((1,), countdown=1e12), OverflowError, "out of range"),
    "no call": ((1, 2), TypeError, "celery_ext.Call, not tuple"),
}


def test_what_is_before_a_bad_call_is_sent(make_proj: MakeProj) -> None:
    """A call that cannot be sent raises what ``apply_async`` would; all before it are sent and told, none after."""
    proj = make_proj(broker_transport_options={"max_delay": 7200})
    proj.app.task(name=RECORD, shared=False)(only_value)
    ids: list[str] = []
    for count, (name, (bad, error, said)) in enumerate(BAD.items(), 1):
        calls = [*(Call((n,), countdown=60) for n in range(250)), bad, Call((0,), countdown=60)]
        with pytest.raises(error, match=said):
            send_many(proj.app, RECORD, calls, on_sent=ids.extend)
        assert len(ids) == count * 250, name
        with pytest.raises(error, match=said):
            send_many(proj.app, RECORD, [bad], on_sent=ids.extend)
    assert messages(proj) == Counter(ids)


def only_value(value: Any = None) -> None:
    """Takes one argument."""


def test_what_is_before_a_failure_of_the_callers_is_sent(proj: Proj) -> None:
    """An exception of what makes the calls, or of ``on_sent``, goes through; what was read before is sent, and told."""
    ids: list[str] = []
    for error, count in ((KeyError, 1), (KeyboardInterrupt, 400)):
        with pytest.raises(error, match="no more"):
            send_many(proj.app, RECORD, _failing(error, count), on_sent=ids.extend)
        assert messages(proj) == Counter(ids)
    assert len(ids) == 401

    def fail(page: list[str]) -> None:
        ids.extend(page)
        raise LookupError("not wanted")

    with pytest.raises(LookupError, match="not wanted"):
        send_many(proj.app, RECORD, [Call((n,), countdown=60) for n in range(500)], on_sent=fail)
    assert len(ids) == 501
    assert messages(proj) == Counter(ids)


#: Options that calls cannot share, the error of each, and what it says.
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"task_id": "x", "args": (1,)}, TypeError, "no option args, task_id"),
    ({"chord": {}}, TypeError, "no option chord"),
    ({"producer": None}, TypeError, "no option producer"),
    ({"DelaySeconds": 5}, TypeError, "no option DelaySeconds"),
    ({"countdown": 1, "eta": datetime.now(UTC)}, ValueError, "either countdown or eta"),
    ({"delay_level": 1, "countdown": 1}, ValueError, "delay_level=1 cannot go together with countdown"),
    ({"delay_level": "x"}, ValueError, "delay level is a whole number"),
    ({"delay_chain": "soon"}, ValueError, "soon"),
    ({"serializer": "none"}, Exception, "none"),
]


def test_options_that_calls_cannot_share_are_refused(proj: Proj) -> None:
    """An option that would be lost, or that is wrong, is an error before anything is sent."""
    for options, error, said in REFUSED:
        with pytest.raises(error, match=said):
            send_many(proj.app, RECORD, [Call((1,))], **options)
    assert messages(proj) == Counter()


def test_what_is_no_task_is_refused(proj: Proj) -> None:
    """A signature, whose arguments and options would be lost, is an error before anything is sent, and so is None."""
    for task, said in (
        (proj.app.signature(RECORD, options={"queue": "other"}), "not Signature"),
        (None, "not NoneType"),
    ):
        with pytest.raises(TypeError, match=f"takes a task or the name of one, {said}"):
            send_many(proj.app, task, [Call((1,))])
    assert messages(proj) == Counter()


def test_a_call_with_a_wrong_id_or_time_is_refused(proj: Proj) -> None:
    """An error names the task id of a call that is no text, and a time that Celery's ``apply_async`` refuses, too."""
    with pytest.raises(TypeError, match=r"task_id=UUID\('.*'\) is not a text"):
        send_many(proj.app, RECORD, [Call((1,), task_id=UUID(int=5))])  # type: ignore[arg-type]  # a wrong one
    for options in ({}, {"expires": 60}, {"delay_chain": "1m"}):
        with pytest.raises(ValueError, match="countdown is out of range: -3000000000"):
            send_many(proj.app, RECORD, [Call((1,), countdown=-3e9)], **options)
    with pytest.raises(ValueError, match="expires is out of range: -3000000000"):
        send_many(proj.app, RECORD, [Call((1,))], expires=-3e9)
    assert messages(proj) == Counter()


def test_calls_of_one_id_that_are_due_have_tags_of_their_own(proj: Proj) -> None:
    """A worker may hold both: what it acknowledges by the tag of one must not be the other."""
    send_many(proj.app, RECORD, [Call((1,), task_id="x")] * 2)
    messages = [json.loads(body) for body in proj.server.client().lrange("celery", 0, -1)]
    assert [message["headers"]["id"] for message in messages] == ["x", "x"]
    assert len({message["properties"]["delivery_tag"] for message in messages}) == 2


def test_an_id_that_is_given_twice(proj: Proj) -> None:
    """Calls of one id are as many messages; the very same call, while it waits, is one, as with ``apply_async``."""
    eta = datetime.now(UTC) + HOUR
    send_many(proj.app, RECORD, [Call((n,), eta=eta, task_id="x") for n in (1, 2)])
    assert messages(proj) == {"x": 2}
    send_many(proj.app, RECORD, [Call((n,), eta=eta, task_id="x") for n in (1, 2)])
    proj.app.send_task(RECORD, (1,), eta=eta, task_id="x")
    assert messages(proj) == {"x": 2}
    send_many(proj.app, RECORD, [Call((), eta=eta)] * 3)
    assert len(list(select(proj.app, queues="celery"))) == 5


def test_the_queue_is_declared(proj: Proj) -> None:
    """The queue's binding is in Redis, as ``apply_async`` leaves it."""
    send_many(proj.app, RECORD, [Call()], queue="elsewhere")
    theirs = proj.server.client().smembers("_kombu.binding.elsewhere")
    assert len(theirs) == 1


@pytest.mark.wide
def test_a_key_prefix(make_proj: MakeProj) -> None:
    """With ``global_keyprefix`` all goes to keys with it, and workers find it there."""
    proj = make_proj(broker_transport_options={"global_keyprefix": "my:"})
    send_many(proj.app, RECORD, [Call((n,), countdown=n) for n in range(2)], priority=5)
    keys = [key for key in proj.server.client().scan_iter() if not key.startswith("celery-task-meta")]
    assert len(keys) >= 4
    assert all(key.startswith("my:") for key in keys)
    proj.worker(pool="solo")
    assert {run["value"] for run in proj.await_runs(2)} == {0, 1}


@pytest.mark.parametrize("every", [100, 70])
def test_a_lost_connection_is_made_again(proj: Proj, every: int) -> None:
    """Connections that Redis ends, with a page on its way or not, cost no message, and none is sent twice."""
    client = proj.server.client()
    ids: list[str] = []

    def cut(page: list[str] | None = None) -> None:
        ids.extend(page or ())
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def calls() -> Iterator[Call]:
        for n in range(1000):
            if n % every == 0:
                cut()
            yield Call((n,), countdown=600)

    assert send_many(proj.app, RECORD, calls(), on_sent=cut) == 1000
    assert messages(proj) == Counter(ids)


@pytest.mark.parametrize("count", [100, 1000])
def test_no_connection_is_left(own_server: PrivateRedis, make_proj: MakeProj, count: int) -> None:
    """What is sent in many pages has a connection of its own, which is closed then."""
    proj = make_proj(own_server)
    send_many(proj.app, RECORD, [Call()])
    client = own_server.client()
    before = len(client.client_list())
    most = 0

    def look(_: list[str]) -> None:
        nonlocal most
        most = max(most, len(client.client_list()))

    send_many(proj.app, RECORD, (Call((n,)) for n in range(count)), on_sent=look)
    assert most == before + (count > 100)
    assert until(lambda: len(client.client_list()) == before)


@pytest.mark.parametrize("options", [{}, {"retry": False}])
def test_a_broker_that_does_not_answer(own_server: PrivateRedis, make_proj: MakeProj, options: dict[str, Any]) -> None:
    """It is tried as often as ``task_publish_retry_policy`` says; then the error is the one of ``apply_async``."""
    proj = make_proj(own_server, task_publish_retry_policy={"max_retries": 1, "interval_start": 0})
    send_many(proj.app, RECORD, [Call()])
    own_server.close()
    with pytest.raises(OperationalError):
        send_many(proj.app, RECORD, [Call()], **options)


class LosesReplies(Proxy):
    """Ends the connection over which a page of messages went, once Redis has it: the first, the third and so on."""

    def __init__(self, target: int, times: int) -> None:
        super().__init__(target, on_request=self._watch, on_reply=self._lose)
        self.left = times
        self._page = self._again = False

    def _watch(self, request: bytes) -> bytes:
        self._page = self._page or b":sender:" in request
        return request

    def _lose(self, reply: bytes) -> bytes | None:
        if not self._page:
            return reply
        self._page = False
        self._again = not self._again and self.left > 0
        self.left -= self._again
        return None if self._again else reply


@pytest.mark.parametrize("countdown", [None, 0.2, 600])
def test_a_page_whose_reply_is_lost_is_published_once(make_proj: MakeProj, countdown: float | None) -> None:
    """A page that Redis has, and whose reply is lost, is sent again and changes nothing, whatever its delay is."""
    proj = make_proj()
    with LosesReplies(proj.server.port, times=3) as proxy:
        through = make_proj(broker_url=f"redis://127.0.0.1:{proxy.port}/0")
        assert send_many(through.app, RECORD, (Call((n,), countdown=countdown) for n in range(700))) == 700
        assert proxy.left == 0, "replies were lost"
    if countdown == 0.2:
        with proj.connection() as connection, connection.Consumer([Queue("other")], callbacks=[print]):
            until(lambda: proj.delayed() == 0)
    client = proj.server.client()
    assert client.llen("celery") + proj.delayed() == 700
    if countdown != 600:
        sent = [json.loads(each)["headers"]["id"] for each in client.lrange("celery", 0, -1)]
        assert len(set(sent)) == 700


def test_nothing_is_sent_again_without_a_retry(make_proj: MakeProj) -> None:
    """With ``retry=False`` a lost reply is the error of ``apply_async``, and no page is sent a second time."""
    proj = make_proj()
    ids: list[str] = []
    with LosesReplies(proj.server.port, times=0) as proxy:
        through = make_proj(broker_url=f"redis://127.0.0.1:{proxy.port}/0")

        def calls() -> Iterator[Call]:
            for n in range(900):
                proxy.left = int(n >= 600)
                yield Call((n,))

        with pytest.raises(OperationalError):
            send_many(through.app, RECORD, calls(), on_sent=ids.extend, retry=False)
    found = [json.loads(each)["headers"]["id"] for each in proj.server.client().lrange("celery", 0, -1)]
    assert len(set(found)) == len(found) < 900
    assert set(ids) < set(found), "what was told of is there, and the page whose reply was lost"
