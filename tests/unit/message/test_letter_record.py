"""A message that consumers died with becomes a dead letter."""

import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from celery_ext.dead_letters import DeadLetter
from kombu_delayq.message.fields import Message, deliveries_of, headers_of, priority_of, properties_of, to_json
from kombu_delayq.message.letter_record import FIELDS, LetterRecord, Reason, beyond_delivery_limit, record, too_late
from kombu_delayq.message.once import key_of
from kombu_delayq.message.unacked import redelivered
from tests.support.messages import plain_message, task_message

CONSUMER = "web1:77:0000abcd"


def buried(message: Message) -> DeadLetter:
    letter = beyond_delivery_limit(message, 3, CONSUMER, "dead")
    return DeadLetter("dead", to_json(letter).encode())


def test_a_letter_says_why() -> None:
    """It has the reason, the consumer that died last, and the way on which the task came, and its own arguments."""
    letter = buried(redelivered(task_message(retries=2, expires=60), **{"x-delivery-count": 2}))
    assert (letter.reason, letter.worker, letter.retries) == ("delivery limit reached", CONSUMER, 2)
    assert letter.error == "3 consumers died with it in their hands"
    assert (letter.exchange, letter.routing_key) == ("", "published")
    assert letter.at is not None
    assert abs(letter.at - datetime.now(UTC)) < timedelta(minutes=5)
    assert letter.task.args == [1, "x"]


def test_a_letter_is_as_the_message_was_sent() -> None:
    """It begins anew when it is replayed: not redelivered, without count, retries, expiry and chain."""
    sent = task_message(priority=3)
    was = redelivered(sent, **{"x-delivery-count": 2, "delay_chain_id": "c", "delay_chain": "1s"})
    was["headers"] |= {"retries": 2, "expires": "2100-01-01T00:00:00+00:00"}
    letter = beyond_delivery_limit(was, 3, CONSUMER, "dead")
    assert letter["body"] == sent["body"]
    assert letter["headers"] == sent["headers"]
    properties = letter["properties"]
    assert properties.pop("dead_letter")
    assert properties.pop("delay_chain") == "1s"
    assert properties.pop("delivery_info") == {"exchange": "", "routing_key": "dead"}
    del sent["properties"]["delivery_info"]
    assert properties == sent["properties"]


@pytest.mark.parametrize("group", [None, "a group"])
@pytest.mark.parametrize("chain", [None, [{"task": "next"}]])
def test_a_replay_is_a_new_publication(group: str | None, chain: Any) -> None:
    """It has an id of its own, of which the old one is the key, unless the others of a group or a chain know that."""
    message = task_message()
    message["headers"]["group"] = group
    message["body"] = b64encode(json.dumps([[1], {}, {"chain": chain}]).encode()).decode()
    old = message["headers"]["id"]
    for _ in range(2):
        message = json.loads(buried(message).released("", "q"))
        new = message["headers"]["id"]
        assert (new, message["headers"]["root_id"]) == (message["properties"]["correlation_id"], old)
        assert (new == old, key_of(new)) == (bool(group or chain), old)


@pytest.mark.parametrize("message", [plain_message(), {}, {"headers": 1, "properties": 2}, {"headers": {"a": 1}}])
def test_any_message_becomes_a_letter(message: Message) -> None:
    """A message that is no task, or none of kombu's, is buried all the same, and nothing is added to its headers."""
    letter = buried(message)
    assert (letter.reason, letter.retries) == ("delivery limit reached", 0)
    assert headers_of(message) == headers_of(beyond_delivery_limit(message, 1, CONSUMER, "dead"))


@pytest.mark.parametrize(("count", "read"), [(2, 2), (0, 0), (-1, 0), ("2", 0), (None, 0), (1.5, 0)])
def test_a_count_that_is_none_is_nought(count: Any, read: int) -> None:
    """Any program may have written the count of deliveries."""
    assert deliveries_of({"properties": {"x-delivery-count": count}}) == read
    assert deliveries_of({}) == 0


@pytest.mark.parametrize(
    ("priority", "read"), [(0, 0), (9, 9), (10, 9), (-1, 0), ("3", 3), (None, 0), ("x", 0), ([], 0)]
)
def test_a_priority_is_read_as_kombu_does(priority: Any, read: int) -> None:
    """A priority is from 0 to 9, and 0 where there is none."""
    assert priority_of({"properties": {"priority": priority}}) == read
    assert priority_of({}) == priority_of({"properties": 1}) == 0
    assert properties_of({"properties": 1}) == {}


def test_a_letter_of_a_message_that_was_too_late() -> None:
    """It says by how much, and from which queue it came; a message without an address goes back to that queue."""
    letter = DeadLetter("dead", to_json(too_late(task_message(), 90_000, 60_000, "q", "dead")).encode())
    assert (letter.reason, letter.routing_key, letter.worker) == ("too late", "published", None)
    assert letter.error == "due 90.0 s before its turn came, which is more than max_lateness=60"
    plain = DeadLetter("dead", to_json(too_late({"body": "b"}, 90_000, 60_000, "q", "dead")).encode())
    assert (plain.exchange, plain.routing_key) == ("", "q")


def test_a_field_of_the_record_is_written_and_read() -> None:
    """What is missing or of another type is as if it were not there, and a long text loses its begin or its end."""
    told = record(Reason.FAILED, "e" * 2000, traceback="t" * 9000 + "end", retries=2, worker="w@h")
    assert [*told] == [one.name for one in FIELDS]
    assert (len(told["error"]), told["traceback"][-3:], len(told["traceback"])) == (1000, "end", 8000)
    assert LetterRecord.of({"dead_letter": told}).written() == told
    for odd in (None, "text", {"reason": 1, "error": [], "retries": "2", "at": "yesterday", "worker": None}):
        assert LetterRecord.of({"dead_letter": odd}) == LetterRecord()


def test_a_letter_has_each_field_of_its_record() -> None:
    """Each is an attribute with a docstring, for whoever reads the reference."""
    letter = buried(task_message())
    for one in FIELDS:
        assert getattr(letter, one.name) == getattr(letter.record, one.name)
        assert getattr(DeadLetter, one.name).__doc__ == one.metadata["about"]
