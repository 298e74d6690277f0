"""What the processes of ``delayq serve`` tell each other: answers to requests, and bulk actions."""

from collections.abc import Mapping
from typing import Literal, NamedTuple
from uuid import uuid4

from celery_ext.serve.keys import ServeKeys
from kombu_delayq.redis import HashKey, checked, operation
from kombu_delayq.store import QueueRegistry, StoreClient, StorePart
from kombu_delayq.text import as_bytes, as_text

#: How long an answer is kept, and how long a caller may work on a request before another may. Both in s.
ANSWER_TTL_S, HOLD_S = 86_400, 60


class Claim(NamedTuple):
    """What is known of a request.

    Attributes:
        word: ``first`` or ``again``: the caller has to do the work; ``again`` if another began it and has gone without
            an answer, so that some of it may be done. ``kept``: it is done. ``running``: another does it. ``other``:
            the key belongs to another request.
        at_ms: When the request came first, by Redis's clock, ms since the epoch.
        answer: With ``kept``: the answer.
        name: Identifies the caller to ``Answers.end_claim``.
    """

    word: str
    at_ms: float
    answer: bytes
    name: str


@operation()
def claim(*, answer: HashKey, name: str, digest: str, hold: int, ttl: int) -> tuple[str, float, bytes]: ...
@operation()
def end_claim(*, answer: HashKey, name: str, how: str, kept: bytes) -> str: ...


class Answers(StorePart):
    """Keeps the first answer to each request that has an idempotency key."""

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client, registry)
        self._own = ServeKeys(client.keys)

    def claim(self, key: str, digest: str) -> Claim:
        """Claims the work of a request; one round trip.

        Args:
            key: Identifies the request, together with who sent it.
            digest: Of its content. The same key with another digest is an error of its sender.
        """
        name = uuid4().hex
        of = {"name": name, "digest": digest}
        call = claim(answer=self._own.answer(key), **of, hold=HOLD_S * 1000, ttl=ANSWER_TTL_S * 1000)
        return Claim(*self._client.run(call), name)

    def end_claim(self, key: str, claim: Claim, how: Literal["keep", "forget", "yield"], answer: bytes = b"") -> bool:
        """Ends the work on a request; one round trip.

        Args:
            key: As it was claimed.
            claim: The claim.
            how: ``keep`` (the answer), ``forget`` (nothing was done, so the request is as new) or ``yield`` (nobody
                knows what was done; another may claim the request).
            answer: With ``keep``.

        Returns:
            False, with nothing changed, if another has claimed the request meanwhile.
        """
        call = end_claim(answer=self._own.answer(key), name=claim.name, how=how, kept=answer)
        return self._client.run(call) == "ended"


#: How long the state of an action is kept after the last time it was written, and how long a command to it. Both in s.
STATE_TTL_S, COMMAND_TTL_S = 3600, 60
_COMMAND, _REPLY = "command:", "reply:"


class SharedState(NamedTuple):
    """The state of a bulk action.

    Attributes:
        state: As its process has written it.
        age_s: How long ago that was.
    """

    state: bytes
    age_s: float


class SharedRuns(StorePart):
    """Keeps the states of bulk actions, and passes commands on to the processes that have them."""

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client, registry)
        self._own = ServeKeys(client.keys)

    def write(self, run: str, state: bytes) -> None:
        """Writes the state of an action; one round trip."""
        key = self._own.shared_run(run)
        self._client.send([("HSET", key, "state", state), ("PEXPIRE", key, STATE_TTL_S * 1000)])

    def read(self, run: str) -> SharedState | None:
        """Returns the state of an action, None if nobody has written it or nobody has for long; one round trip."""
        key = self._own.shared_run(run)
        state, left_ms = checked(self._client.replies([("HGET", key, "state"), ("PTTL", key)]))
        return None if state is None else SharedState(as_bytes(state), STATE_TTL_S - int(left_ms) / 1000)

    def send(self, run: str, command_id: str, command: bytes) -> None:
        """Leaves a command for the process that has an action; one round trip."""
        key = self._own.shared_run_commands(run)
        self._client.send([("HSET", key, _COMMAND + command_id, command), ("PEXPIRE", key, COMMAND_TTL_S * 1000)])

    def commands(self, run: str) -> Mapping[str, bytes]:
        """Returns the commands to an action that have no reply, by their ids; one round trip."""
        found = self._client.ask("HGETALL", self._own.shared_run_commands(run))
        named = {as_text(name): as_bytes(value) for name, value in found.items()}
        return {name.removeprefix(_COMMAND): value for name, value in named.items() if name.startswith(_COMMAND)}

    def reply(self, run: str, command_id: str, reply: bytes) -> None:
        """Replies to a command; one round trip."""
        key = self._own.shared_run_commands(run)
        commands = [("HSET", key, _REPLY + command_id, reply), ("HDEL", key, _COMMAND + command_id)]
        self._client.send([*commands, ("PEXPIRE", key, COMMAND_TTL_S * 1000)])

    def reply_to(self, run: str, command_id: str) -> bytes | None:
        """Returns the reply to a command; None while there is none; one round trip."""
        found = self._client.ask("HGET", self._own.shared_run_commands(run), _REPLY + command_id)
        return None if found is None else as_bytes(found)
