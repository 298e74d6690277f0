"""Tokens: a file has the hash of each, and what its holder may do."""

import hashlib
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from celery_ext.serve.access.identity import Action, Caller
from kombu_delayq.errors import DelayqError

logger = logging.getLogger(__name__)


#: Length of a period in s, by its unit.
_PERIODS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RATE = re.compile(r"([1-9][0-9]{0,8})/([smhd])")


@cache
def parse_rate(text: str) -> tuple[int, int]:
    """Reads a rate such as ``100/s``, ``5/m``, ``1000/h`` or ``20000/d``.

    Returns:
        How many requests are let in within a period, also all at once; and the length of the period in s.

    Raises:
        ValueError: The text is no rate.
    """
    if not (found := _RATE.fullmatch(text)):
        raise ValueError(f"{text!r} is no rate: write 100/s, 5/m, 1000/h or 20000/d")
    return int(found[1]), _PERIODS_S[found[2]]


class RateLimiter:
    """Counts the requests of this process, by name. Another process counts its own.

    Args:
        now: A clock in s that never goes back.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._lock = Lock()
        #: When all requests so far would be over, had they come one by one at the rate.
        self._over_at: dict[tuple[str, str], float] = {}

    def wait_s(self, name: str, rate: str) -> float:
        """Counts a request, if there is room for it.

        The method is the generic cell rate algorithm: a bucket of tokens that is kept as one time.
        Source: ITU-T I.371, annex A.

        Args:
            name: Whose request it is.
            rate: How many that name may send, as ``parse_rate`` reads it.

        Returns:
            0 if the request may pass; otherwise after how many s the next one may, and nothing is counted.
        """
        count, period_s = parse_rate(rate)
        with self._lock:
            now = self._now()
            over_at = max(self._over_at.get((name, rate), now), now) + period_s / count
            # The period in whole, with room for what floating point makes of sums.
            wait_s = over_at - now - period_s
            if wait_s > 1e-6:
                return wait_s
            self._over_at[name, rate] = over_at
            return 0.0


#: What every token begins with, so that programs that look for leaked secrets find it.
PREFIX = "dq_"
#: Random bytes of a token: nobody guesses 256 bits, so the hash needs no salt and may be fast.
_RANDOM_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
#: Rights of others than the owner: with the hashes anybody could sign a cookie of the page.
_OTHERS = 0o077
#: The same for a file of root's, which its group may read: so a Secret comes to a container that is not run as root.
_OTHERS_OF_ROOT = 0o037


class InvalidTokens(DelayqError, ValueError):
    """The file of tokens cannot be read, or is not written as one."""


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the file says of a token.

    Attributes:
        name: Its name, which is no secret: it stands in logs, in the audit and in a cookie.
        sha256: Hash of the token, 64 hexadecimal digits.
        actions: What its holder may do.
        queues: Patterns of names of queues, such as ``orders.*``.
        tasks: Patterns of names of tasks.
        rate: How many requests its holder may send, as ``parse_rate`` reads it; None for any number.
        expires: From when on it is refused; None for never.
    """

    name: str
    sha256: str
    actions: frozenset[Action]
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    rate: str | None = None
    expires: Annotated[datetime, Meta(tz=True)] | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name {self.name!r} is not 1 to 64 letters, digits, or . _ @ -")
        if not _HASH.fullmatch(self.sha256):
            raise ValueError(f"token {self.name}: sha256 is not 64 hexadecimal digits")
        if self.rate is not None:
            parse_rate(self.rate)

    @property
    def caller(self) -> Caller:
        """Its holder."""
        return Caller(self.name, self.actions, self.queues, self.tasks)

    def has_expired(self) -> bool:
        """Whether its time is over."""
        return self.expires is not None and datetime.now(UTC) >= self.expires

    def as_dict(self) -> dict[str, Any]:
        """Returns the entry of the file."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        actions = [str(action) for action in Action if action in self.actions]
        return found | {"actions": actions, "queues": list(self.queues), "tasks": list(self.tasks)}

    @classmethod
    def parse(cls, entry: Any) -> "Token":
        """Reads an entry of the file.

        Raises:
            ValueError: It is not written as one; the text says what is wrong, without the hash.
        """
        try:
            return msgspec.convert(entry, cls)
        except msgspec.ValidationError as error:  # in older releases no ValueError
            raise ValueError(str(error)) from None


class _Content(msgspec.Struct):
    tokens: list[Token]


class Tokens:
    """The tokens of a file.

    Args:
        tokens: In the order of the file.

    Raises:
        ValueError: Two have one name or one hash.
    """

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self.all = tuple(tokens)
        self._by_name = {token.name: token for token in self.all}
        self._by_hash = {token.sha256: token for token in self.all}
        if not len(self.all) == len(self._by_name) == len(self._by_hash):
            raise ValueError("two tokens have one name, or one hash")

    def named(self, name: str) -> Token | None:
        """Returns the token of this name."""
        return self._by_name.get(name)

    def of_secret(self, secret: str) -> Token | None:
        """Returns the entry of a token.

        The search goes by the hash of what came. The time it takes says nothing of the hashes in the file: nobody can
        choose a token by the hash that it has.
        """
        return self._by_hash.get(hash_of(secret))


class TokenFile:
    """A file of tokens, read again whenever it changes.

    Args:
        path: The file.

    Raises:
        InvalidTokens: The file cannot be read, or is not written as one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _version(path)
        self._tokens = read_tokens(path)

    @property
    def tokens(self) -> Tokens:
        """What the file has now; if it cannot be read any more, what it had before that."""
        seen = _version(self._path)
        if seen != self._seen:
            self._seen = seen
            try:
                self._tokens = read_tokens(self._path)
            except InvalidTokens as error:
                logger.error("the tokens stay as they were: %s", error)
        return self._tokens


def _version(path: Path) -> tuple[int, ...]:
    """Returns what changes with the file, an empty tuple without a file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_tokens(path: Path) -> Tokens:
    """Reads a file of tokens.

    Raises:
        InvalidTokens: The file cannot be read, or is not written as one.
    """
    try:
        found = path.stat()
        if found.st_mode & (_OTHERS if found.st_uid else _OTHERS_OF_ROOT):
            logger.warning(
                "others may read or write the file of tokens %s: change its mode to 0600, or to 0440 if it is root's",
                path,
            )
        return Tokens(msgspec.json.decode(path.read_bytes(), type=_Content).tokens)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidTokens(f"file of tokens {path}: {reason}") from None


def write_tokens(path: Path, tokens: Iterable[Token]) -> None:
    """Writes a file of tokens that only its owner may read, in one step: a reader finds the old or the new one.

    Raises:
        OSError: The file cannot be written.
    """
    content = json.dumps({"tokens": [token.as_dict() for token in tokens]}, indent=2)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{content}\n")
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def new_secret() -> str:
    """Returns a new token: the prefix and 256 random bits, 46 characters."""
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def hash_of(secret: str) -> str:
    """Returns the hash of a token, as the file has it."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()
