"""The bulk actions of ``delayq serve``, as each of several processes of a server can see them and speak to them."""

from collections.abc import Mapping
from typing import NamedTuple

from kombu_delayq.redis.replies import as_bytes, as_text, checked
from kombu_delayq.store.client import StorePart

#: How long the state of an action is kept after the last time it was written, and how long a word to it. Both in s.
STATE_TTL_S, WORD_TTL_S = 3600, 60
_WORD, _REPLY = "word:", "reply:"


class SharedState(NamedTuple):
    """The state of a bulk action.

    Attributes:
        state: As its process has written it.
        age_s: How long ago that was.
    """

    state: bytes
    age_s: float


class SharedRuns(StorePart):
    """Keeps the states of bulk actions, and takes words to them, such as that an action is to start."""

    def write(self, run: str, state: bytes) -> None:
        """Writes the state of an action; one round trip."""
        key = self._keys.shared_run(run)
        self._client.send([("HSET", key, "state", state), ("PEXPIRE", key, STATE_TTL_S * 1000)])

    def read(self, run: str) -> SharedState | None:
        """Returns the state of an action, None if nobody has written it or nobody has for long; one round trip."""
        key = self._keys.shared_run(run)
        state, left_ms = checked(self._client.replies([("HGET", key, "state"), ("PTTL", key)]))
        return None if state is None else SharedState(as_bytes(state), STATE_TTL_S - int(left_ms) / 1000)

    def say(self, run: str, word_id: str, word: bytes) -> None:
        """Leaves a word for the process that has an action; one round trip."""
        key = self._keys.shared_run_words(run)
        self._client.send([("HSET", key, _WORD + word_id, word), ("PEXPIRE", key, WORD_TTL_S * 1000)])

    def words(self, run: str) -> Mapping[str, bytes]:
        """Returns the words to an action that have no reply, by their ids; one round trip."""
        found = self._client.ask("HGETALL", self._keys.shared_run_words(run))
        named = {as_text(name): as_bytes(value) for name, value in found.items()}
        return {name.removeprefix(_WORD): value for name, value in named.items() if name.startswith(_WORD)}

    def reply(self, run: str, word_id: str, reply: bytes) -> None:
        """Replies to a word; one round trip."""
        key = self._keys.shared_run_words(run)
        commands = [("HSET", key, _REPLY + word_id, reply), ("HDEL", key, _WORD + word_id)]
        self._client.send([*commands, ("PEXPIRE", key, WORD_TTL_S * 1000)])

    def reply_to(self, run: str, word_id: str) -> bytes | None:
        """Returns the reply to a word; None while there is none; one round trip."""
        found = self._client.ask("HGET", self._keys.shared_run_words(run), _REPLY + word_id)
        return None if found is None else as_bytes(found)
