"""``Idempotency-Key``: a request that comes again with its key gets the first answer, and is not done again."""

import logging
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID
from zlib import compress, decompress

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve.access.identity import caller_of
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.service import serve_of
from celery_ext.serve.store import Answers

logger = logging.getLogger(__name__)

HEADER = "Idempotency-Key"
#: Says in an answer that it is the first one, kept.
REPLAYED = "Idempotency-Replayed"
#: Longest key, in characters.
LONGEST = 255


class Attempt(NamedTuple):
    """One try of a request.

    Attributes:
        base_ms: When the request came first, by Redis's clock, ms since the epoch; a countdown counts from there. None
            without a key: it counts from now.
        is_again: Whether an earlier try may have done some of it.
        key: Identifies the request; empty without a key.
    """

    base_ms: float | None = None
    is_again: bool = False
    key: str = ""

    def task_id(self, number: int = 0) -> str | None:
        """Returns an id for a task of this request, the same at each try; None without a key."""
        if not self.key:
            return None
        return str(UUID(bytes=sha256(f"{self.key}:{number}".encode()).digest()[:16], version=4))


class _Kept(msgspec.Struct, array_like=True):
    """An answer as Redis keeps it, with its body compressed: that of a batch is long, and much alike."""

    status: int
    headers: dict[str, str]
    body: bytes


Work = Callable[[Attempt], Awaitable[Response]]


async def once(request: Request, work: Work) -> Response:
    """Does the work of a request, unless its key has an answer already.

    Raises:
        Problem: 400: the key is none; 409: another request works on it; 422: it came with another request.
    """
    given = request.headers.get(HEADER)
    if given is None:
        return await work(Attempt())
    if not 0 < len(given) <= LONGEST or not given.isprintable():
        raise bad_request(f"{HEADER} is a text of 1 to {LONGEST} printable characters", "bad-idempotency-key")
    key = _digest(caller_of(request).name, given)
    digest = _digest(request.method, request.scope["path"], (await request.body()).decode("latin-1"))
    answers = serve_of(request).store.part(Answers)
    claim = await run_in_threadpool(answers.claim, key, digest)
    if claim.word == "kept":
        return _replay(claim.answer)
    if claim.word == "other":
        raise Problem(422, f"this {HEADER} came with another request before", "idempotency-key-reused")
    if claim.word == "running":
        detail = f"a request with this {HEADER} is being worked on"
        raise Problem(409, detail, "idempotency-key-in-use", headers={"Retry-After": "1"})

    how, kept = "yield", b""
    try:
        response = await work(Attempt(claim.at_ms, claim.word == "again", key))
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        how, kept = "keep", msgspec.msgpack.encode(_Kept(response.status_code, headers, compress(response.body, 1)))
        return response
    except Problem as problem:
        if claim.word == "first" and problem.extra.get("outcome") != "unknown":  # it has changed nothing
            how = "forget"
        raise
    finally:
        await run_in_threadpool(_end, lambda: answers.end_claim(key, claim, how, kept))  # type: ignore[arg-type]


def _end(act: Callable[[], bool]) -> None:
    try:
        if not act():
            logger.warning("an answer is not kept: its request took so long that another has claimed it")
    except Exception as error:  # the work is done, and its answer is what counts
        logger.warning("an answer is not kept, so the request would be done again: %s: %s", type(error).__name__, error)


def _replay(kept: bytes) -> Response:
    found = msgspec.msgpack.decode(kept, type=_Kept)
    return Response(decompress(found.body), found.status, {**found.headers, REPLAYED: "true"})


def _digest(*parts: str) -> str:
    # The length before each part, so that no two lists of parts have the same text.
    return sha256("".join(f"{len(part)}:{part}" for part in parts).encode("utf-8", "surrogatepass")).hexdigest()
