"""The layouts in which a store looks, where an ACL forbids one of them and several threads use the store."""

import logging
from threading import Event, Thread

import pytest
import redis
from redis.exceptions import NoPermissionError

from kombu_delayq.store.client import StoreClient

BOTH, OWN = ("hash", "redisson"), ("hash",)


@pytest.fixture
def client() -> StoreClient:
    """What the parts of a store share; it connects to nothing."""
    return StoreClient(redis.Redis())


def refused(forms: tuple[str, ...]) -> tuple[str, ...]:
    """Looks in these forms, as a user who may not look at the other one."""
    if len(forms) > 1:
        raise NoPermissionError("the other layout")
    return forms


def test_a_refusal_in_one_thread_changes_nothing_that_another_looks_at(client: StoreClient) -> None:
    """While one thread looks again at its own layout alone, another looks at both, and none is lost by an error."""
    begun, done = Event(), Event()

    def fails_in_both(forms: tuple[str, ...]) -> None:
        if len(forms) == 1:
            begun.set()
            assert done.wait(10)
        raise NoPermissionError("either layout")

    def look() -> None:
        with pytest.raises(NoPermissionError):
            client.in_each_form(fails_in_both)

    thread = Thread(target=look)
    thread.start()
    assert begun.wait(10)
    assert client.in_each_form(lambda forms: forms) == BOTH
    done.set()
    thread.join()
    assert client.forms == BOTH


def test_a_call_keeps_its_forms_while_another_thread_drops_one(client: StoreClient) -> None:
    """A call that has begun with both layouts goes on with both; the next looks at the store's own layout alone."""
    begun, done, seen = Event(), Event(), list[tuple[str, ...]]()

    def slow(forms: tuple[str, ...]) -> None:
        begun.set()
        assert done.wait(10)
        seen.append(forms)

    thread = Thread(target=client.in_each_form, args=(slow,))
    thread.start()
    assert begun.wait(10)
    assert client.in_each_form(refused) == OWN
    done.set()
    thread.join()
    assert seen == [BOTH]
    assert client.in_each_form(lambda forms: forms) == OWN


def test_a_refusal_is_logged_once(client: StoreClient, caplog: pytest.LogCaptureFixture) -> None:
    """Of several threads that are refused at the same time, one logs it."""
    caplog.set_level(logging.INFO, "kombu_delayq.store.client")
    threads = [Thread(target=client.in_each_form, args=(refused,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(caplog.records) == 1
    assert client.forms == OWN
