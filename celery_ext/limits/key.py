"""The key of a limit: made of a declaration and a call's arguments, or given by a call, and written into a header."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from hashlib import sha256
from inspect import Parameter, getattr_static, signature
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import UUID

from kombu_delayq.errors import InvalidLimit, did_you_mean, quoted
from kombu_delayq.message import DEAD_LETTER, PLACE

#: Header of a message with its key, such as ``account:7``: the name of a limit and, after a colon, the values.
LIMIT_HEADER = PLACE
#: Longest key in characters. The tail of a longer one is replaced by so many hex digits of its SHA-256 after a ``~``.
MAX_KEY, _DIGITS = 200, 32

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,50}")
#: A key that is written already as all are.
_WRITTEN = re.compile(r"[A-Za-z0-9_.-]{1,50}(:[A-Za-z0-9_.:@~+=/,-]*)?")
#: What is percent-encoded in a value. A comma stands between values, and ``%`` before an encoded character.
_ENCODED = re.compile(r"[^A-Za-z0-9_.:@~+=/-]+")
#: What is percent-encoded in a key of a call, in which values are joined, and may be encoded.
_ENCODED_IN_KEY = re.compile(r"(?:[^A-Za-z0-9_.:@~+=/,%-]|%(?![0-9A-Fa-f]{2}))+")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_CUT_ESCAPE = re.compile(r"%[0-9A-F]?\Z")


class _Argument(NamedTuple):
    """An argument whose value is in the key.

    Attributes:
        name: Its name.
        at: Its place among positional arguments; None if it has none.
        default: The text of its default; None without one.
    """

    name: str
    at: int | None
    default: str | None


class LimitDeclaration(NamedTuple):
    """What a task says of its limit. It can be pickled without the task.

    Attributes:
        task: Name of the task.
        name: Name of the limit.
        arguments: The arguments whose values make the key; empty for one key for all calls.
    """

    task: str
    name: str
    arguments: tuple[_Argument, ...] = ()

    def key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Returns the key of a call.

        Raises:
            InvalidLimit: The call does not have an argument, or its value makes no key.
        """
        if not self.arguments:
            return self.name
        values = [self._value(argument, args, kwargs) for argument in self.arguments]
        return _bounded(f"{self.name}:{','.join(values)}")

    def _value(self, argument: _Argument, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        name, at, default = argument
        if at is not None and at < len(args):
            value = args[at]
        elif name in kwargs:
            value = kwargs[name]
        elif default is not None:
            return default
        else:
            raise InvalidLimit(f"limit {self.name!r} of task {self.task} needs the argument {name}, which a call omits")
        try:
            return _encoded(_text_of(value))
        except ValueError as error:
            where = f"limit {self.name!r} of task {self.task}"
            raise InvalidLimit(f"{where} cannot be made of the argument {name} of a call: {error}") from None


def declared_limit(task: Any) -> LimitDeclaration | None:
    """Reads ``limit`` of a task or of its class; None if it has none.

    Raises:
        InvalidLimit: It is neither the name of a limit nor that and names of arguments, which the task's function has.
    """
    given = getattr(task, "limit", None)
    if given is None:
        return None
    parts = [given] if isinstance(given, str) else given
    if not (isinstance(parts, Sequence) and parts and all(isinstance(part, str) for part in parts)):
        raise InvalidLimit(
            f'limit of task {task.name} is a name, such as "stripe", or a name and names of arguments, such as '
            f'("account", "account_id"), not {quoted(given)}'
        )
    name, *arguments = parts
    _check_name(name, f"task {task.name}")
    return LimitDeclaration(task.name, name, tuple(_arguments_of(task, arguments)) if arguments else ())


def _arguments_of(task: Any, names: Sequence[str]) -> list[_Argument]:
    try:
        parameters = list(signature(task.run).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidLimit(f"limit of task {task.name} names arguments, but its function shows none: {error}") from None
    if isinstance(task, type) and not isinstance(getattr_static(task, "run"), staticmethod):
        del parameters[:1]  # the task itself
    places = {
        each.name: at
        for at, each in enumerate(parameters)
        if each.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    }
    known = {each.name: each for each in parameters if each.name in places or each.kind is Parameter.KEYWORD_ONLY}
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in parameters)
    found = []
    for name in names:
        if name not in known and not takes_any:
            hint = did_you_mean(name, [each.lower() for each in known])
            raise InvalidLimit(f"limit of task {task.name} names {name!r}, which is no argument of its function{hint}")
        default = known[name].default if name in known else Parameter.empty
        try:
            text = None if default is Parameter.empty else _encoded(_text_of(default))
        except ValueError:  # a call that gives no value raises
            text = None
        found.append(_Argument(name, places.get(name), text))
    return found


def read_key(given: Any) -> str:
    """Returns a key that a call gives, in the form of those that are made of arguments; empty for none.

    Args:
        given: A text such as ``account:7``. A comma is between values; ``%2C`` is one in a value.

    Raises:
        InvalidLimit: It is no text, or does not begin with the name of a limit.
    """
    if not isinstance(given, str):
        raise InvalidLimit(f"limit of a call is a text, such as 'account:7', not {quoted(given)}")
    if _WRITTEN.fullmatch(given):
        return _bounded(given)
    if not given:
        return ""
    name, colon, values = given.partition(":")
    _check_name(name, "a call")
    escaped = _ENCODED_IN_KEY.sub(_percent, values)
    return _bounded(f"{name}{colon}{_ESCAPE.sub(lambda found: found[0].upper(), escaped)}")


def add_key(declared: LimitDeclaration | None, given: Any, args: Any, kwargs: Any, options: dict[str, Any]) -> None:
    """Adds the key of a call to the headers in its options, which another mapping replaces then.

    The limit that the call gives goes before a key that is in the headers already, such as in those of a retry. That
    goes before the declaration of the task, which does not count for a task that has run.

    Args:
        declared: What the task declares; None if it does not, or is unknown.
        given: ``limit`` of the call; None for that of the task, empty for none.
        args: Its positional arguments, or None.
        kwargs: Its keyword arguments, or None.
        options: Its other arguments, as of ``send_task``.

    Raises:
        InvalidLimit: As of ``read_key``, and of ``LimitDeclaration.key``.
    """
    if given is None:
        if declared is None or options.get("retries") or DEAD_LETTER in options:
            return
        headers = dict(options.get("headers") or ())
        if LIMIT_HEADER in headers:
            return
        key = declared.key(args or (), kwargs or {})
    else:
        key = read_key(given)
        headers = dict(options.get("headers") or ())
        if headers.pop(LIMIT_HEADER, None) is None and not key:
            return
    options["headers"] = {**headers, LIMIT_HEADER: key} if key else headers


def _check_name(name: str, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidLimit(
            f"limit of {where} has the name {quoted(name)}; a name has 1 to 50 letters of ASCII, digits, '_', '.' and "
            "'-'"
        )


def _text_of(value: Any) -> str:
    """Returns the text of a value; that of a member of an enumeration is that of its value, as in a message."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    raise ValueError(f"{quoted(value)} is no text, number, UUID or date")


def _encoded(text: str) -> str:
    return _ENCODED.sub(_percent, text)


def _percent(found: re.Match[str]) -> str:
    return quote(found[0], safe="", errors="replace")


def _bounded(key: str) -> str:
    """Returns a key with a hash in place of its tail if it is too long."""
    if len(key) <= MAX_KEY:
        return key
    head = _CUT_ESCAPE.sub("", key[: MAX_KEY - 1 - _DIGITS])
    return f"{head}~{sha256(key.encode()).hexdigest()[:_DIGITS]}"
