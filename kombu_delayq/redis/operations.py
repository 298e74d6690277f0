"""Declares operations: a stub says what a Lua script takes and returns, by the names and in the order of its header.

::

    @operation()
    def ack(*, unacked_index: ZSetKey, unacked: HashKey, tags: Args[str]) -> list[str]: ...

A call, ``ack(unacked_index=..., unacked=..., tags=...)``, is what the client of a store runs, alone or with others. The
stub is compared with the header when its script is first asked for.

A parameter that is a named tuple stands for its fields. One of a type that is not named here is one argument, of which
None becomes an empty text, and a boolean 1 or 0. The type of the result says how a reply is read: ``str`` makes a text
of it, ``bytes`` bytes, ``int`` and ``float`` a number, which is 0 for an empty text or None for ``| None``, and a list
or a tuple, also a named one, does so with each item. ``Any`` leaves it as it is.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import chain
from types import NoneType
from typing import Annotated, Any, Generic, NamedTuple, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints

from kombu_delayq.redis import scripts
from kombu_delayq.text import as_bytes, as_text

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class _Kind(NamedTuple):
    """What the type of a parameter says of it, as in ``scripts.Parameter``, and the expression that sends it."""

    of: str
    kind: str
    sent: str = "{}"
    is_rest: bool = False


Key = str | bytes
ZSetKey = Annotated[Key, _Kind("KEYS", "ZSET")]
HashKey = Annotated[Key, _Kind("KEYS", "HASH")]
StringKey = Annotated[Key, _Kind("KEYS", "STRING")]
SetKey = Annotated[Key, _Kind("KEYS", "SET")]
ListKey = Annotated[Key, _Kind("KEYS", "LIST")]
#: The four keys of a queue's delayed messages.
Stored = Annotated[Iterable[Key], _Kind("KEYS", "", "*{}")]
#: All other keys.
ZSetKeys = Annotated[Iterable[Key], _Kind("KEYS", "ZSET", "*{}", is_rest=True)]
StringKeys = Annotated[Iterable[Key], _Kind("KEYS", "STRING", "*{}", is_rest=True)]
ListKeys = Annotated[Iterable[Key], _Kind("KEYS", "LIST", "*{}", is_rest=True)]
#: For each priority from 0 to 9 the place of its list among the ``ListKeys``.
Priorities = Annotated[Iterable[int], _Kind("ARGV", "PRIORITIES", "*{}")]
#: All other arguments: one by one, or in rows.
Args = Annotated[Iterable[T], _Kind("ARGV", "", "*{}", is_rest=True)]
Rows = Annotated[Iterable[T], _Kind("ARGV", "", "*chain({})", is_rest=True)]

#: All operations that are declared, by their names.
declared: dict[str, "Operation[..., Any]"] = {}


class Call(NamedTuple, Generic[R_co]):
    """A call of an operation.

    Attributes:
        operation: The operation.
        keys: KEYS.
        args: ARGV.
        layout: The layout that it works on, None for that of the store.
    """

    operation: "Operation[..., R_co]"
    keys: list[Any]
    args: list[Any]
    layout: str | None

    def on(self, layout: str | None) -> "Call[R_co]":
        """Returns the call for a layout, None for that of the store."""
        return self if layout == self.layout else Call(*self[:3], layout)


class Operation(Generic[P, R_co]):
    """An operation, which a Lua script of its name does.

    Attributes:
        name: Its name.
        once: Whether a second run answers differently, because the first has removed the messages. If the reply is
            lost, redis-py must not repeat it: a wrong answer would hide the error.
        layout: The layout that it is for, None for each.
    """

    def __init__(self, stub: Callable[P, R_co], *, once: bool = False, layout: str | None = None) -> None:
        self.name, self.once, self.layout = stub.__name__, once, layout
        self._stub, self._is_checked = stub, False

    def __call__(self, *_: P.args, **given: P.kwargs) -> Call[R_co]:
        """Returns a call. Keys and arguments are given by their names."""
        return self._made(**given)

    @cached_property
    def read(self) -> Callable[[Any], R_co]:
        """Returns what a reply says, see the module."""
        known: dict[str, Any] = {"text": as_text, "raw": as_bytes, "NOTHING": (None, b"", "")}
        code = _read(get_type_hints(self._stub)["return"], "reply", known)
        return cast(Callable[[Any], R_co], eval(f"lambda reply: {code}", known))  # noqa: S307

    def script(self, layout: str, *, guarded: bool = False) -> scripts.Script:
        """Returns its script for a layout, ``guarded`` as of ``scripts.load``.

        Raises:
            TypeError: The header says something else than the stub.
        """
        if not self._is_checked:
            for of, said in scripts.parameters_of(self.name).items():
                own = [each for _, fields in self._parameters for each in fields if _kind_of(each[1]).of == of]
                if len(own) != len(said) or not all(map(_agree, own, said)):
                    raise TypeError(f"{self.name}: {of} are declared as {own}, and have {said} in the header")
            self._is_checked = True
        return scripts.load(self.name, layout, guarded=guarded)

    @cached_property
    def _parameters(self) -> list[tuple[str, list[tuple[str, Any]]]]:
        """The stub's parameters, and names and types of what they stand for."""
        hints = get_type_hints(self._stub, include_extras=True)
        return [(name, _fields_of(hint) or [(name, hint)]) for name, hint in hints.items() if name != "return"]

    @cached_property
    def _made(self) -> Callable[..., Call[R_co]]:
        """Returns a function that makes a call; it is compiled, as what reads a reply, for there are many."""
        sent: dict[str, list[str]] = {"KEYS": [], "ARGV": []}
        for name, fields in self._parameters:
            for at, kind in enumerate(_kind_of(hint) for _, hint in fields):
                sent[kind.of].append(kind.sent.format(f"{name}[{at}]" if len(fields) > 1 else name))
        names, keys, args = ", ".join(name for name, _ in self._parameters), *map(", ".join, sent.values())
        known = {"Call": Call, "self": self, "chain": chain.from_iterable}
        code = f"lambda *, {names}: Call(self, [{keys}], [{args}], self.layout)"
        return cast(Callable[..., Call[R_co]], eval(code, known))  # noqa: S307


def operation(*, once: bool = False, layout: str | None = None) -> Callable[[Callable[P, R_co]], Operation[P, R_co]]:
    """Declares an operation by its stub, see ``Operation``."""

    def declare(stub: Callable[P, R_co]) -> Operation[P, R_co]:
        made = Operation(stub, once=once, layout=layout)
        declared[made.name] = made
        return made

    return declare


def _fields_of(hint: Any) -> list[tuple[str, Any]]:
    """Returns the fields of a named tuple, and nothing for any other type."""
    return list(get_type_hints(hint, include_extras=True).items()) if hasattr(hint, "_fields") else []


def _kind_of(hint: Any) -> _Kind:
    if get_origin(hint) is Annotated:
        return cast(_Kind, hint.__metadata__[0])
    if hint is bool:
        return _Kind("ARGV", "FLAG", "int({})")
    types = (hint, *get_args(hint))
    sent = "'' if {0} is None else {0}" if NoneType in types else "{}"
    return _Kind("ARGV", "NUMBER" if int in types or float in types else "", sent)


def _agree(own: tuple[str, Any], said: scripts.Parameter) -> bool:
    """Whether a stub says of a parameter what the header says. A number may stay a text in Lua."""
    (name, hint), kind = own, _kind_of(own[1])
    row = get_args(get_args(hint)[0])[0] if "chain" in kind.sent else tuple[()]
    fields = tuple(field for field, _ in _fields_of(row)) or len(get_args(row))
    in_header = said.fields if isinstance(fields, tuple) else len(said.fields)
    is_same = (name, kind.is_rest, fields) == (said.name, said.is_rest, in_header)
    return is_same and (said.kind == kind.kind or (said.kind, kind.kind) == ("", "NUMBER"))


#: How a reply is read as a type says, see the module.
_READ = {str: "text({})", bytes: "raw({})", bool: "bool({})", int: "int({} or 0)", float: "float({} or 0)", Any: "{}"}


def _read(of: Any, reply: str, known: dict[str, Any]) -> str:
    """Returns the expression that reads a reply, with the named tuples that it makes among ``known``."""
    if of in _READ:
        return _READ[of].format(reply)
    inner = get_args(of)
    if get_origin(of) is list:
        item = _read(inner[0], "item", known)
        return f"list({reply})" if item == "item" else f"[{item} for item in {reply}]"
    if NoneType in inner:
        return f"(None if {reply} in NOTHING else {_read(inner[0], reply, known)})"
    types = [hint for _, hint in _fields_of(of)] or inner
    items = ", ".join(_read(hint, f"{reply}[{at}]", known) for at, hint in enumerate(types))
    if hasattr(of, "_fields"):
        known[of.__name__] = of
        return f"{of.__name__}({items})"
    return f"({items},)"
