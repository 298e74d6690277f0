"""The store's memory of what it answered: a request that comes again with its idempotency key is not done again."""

from typing import Literal, NamedTuple
from uuid import uuid4

from kombu_delayq.redis.replies import as_bytes, as_text
from kombu_delayq.store.client import StorePart

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
        name: Identifies the caller to ``Answers.settle``.
    """

    word: str
    at_ms: float
    answer: bytes
    name: str


class Answers(StorePart):
    """Keeps the first answer to each request that has an idempotency key."""

    def claim(self, key: str, digest: str) -> Claim:
        """Claims the work of a request; one round trip.

        Args:
            key: Identifies the request, together with who sent it.
            digest: Of its content. The same key with another digest is an error of whoever sent it.
        """
        name = uuid4().hex
        args = [name, digest, HOLD_S * 1000, ANSWER_TTL_S * 1000]
        word, at_ms, answer = self._client.run("claim", [self._keys.answer(key)], args)
        return Claim(as_text(word), float(at_ms), as_bytes(answer), name)

    def settle(self, key: str, claim: Claim, how: Literal["keep", "forget", "yield"], answer: bytes = b"") -> bool:
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
        return as_text(self._client.run("settle", [self._keys.answer(key)], [claim.name, how, answer])) == "settled"
