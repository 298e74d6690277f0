"""Bodies of messages: read and written in formats that run no code.

Any program may have written them, so what reads one has bounds on time and memory: see ``MOST_BYTES``.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from copyreg import _extension_cache  # type: ignore[attr-defined]
from importlib import import_module
from io import BytesIO
from itertools import chain
from pickle import Unpickler
from pickletools import OpcodeInfo, genops, markobject
from typing import Any

from kombu import compression

from kombu_delayq.message.fields import Message, headers_of, properties_of
from kombu_delayq.text import as_bytes

JSON, YAML, MSGPACK = "application/json", "application/x-yaml", "application/x-msgpack"
PICKLE = "application/x-python-serialize"
FORMATS = frozenset((JSON, YAML, MSGPACK, PICKLE))
#: Most bytes of a body that is decompressed, and about the most memory that content takes in which a part may stand
#: several times: by aliases in YAML, or by the memo of a pickle. 600 bytes could become 300 MB otherwise.
MOST_BYTES = 10_000_000
#: Most bytes of a body in YAML or a pickle, which take up to 2 µs a byte.
MOST_SLOW_BYTES = 100_000
#: Longest integer in YAML, in characters, and in a pickle, in bits. Python writes none with more than 4300 digits.
MOST_DIGITS, MOST_BITS = 3000, 12_000
#: How deep a body in YAML may be nested.
MOST_DEPTH = 200
#: What a value takes at least, in bytes.
_VALUE_BYTES = 50
#: Operations of a pickle that note a value in its memo, and those that hash what they take.
_NOTING = frozenset(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"))
_HASHING = frozenset(("SETITEM", "SETITEMS", "DICT", "ADDITEMS", "FROZENSET"))
#: Most memory that LZMA takes for its dictionary, in bytes; its highest level needs 65 MB.
_LZMA_BYTES = 100_000_000
#: The modules whose functions kombu itself registers as compressions, with the name of what decompresses in steps.
_COMPRESSING = {
    **dict.fromkeys(("brotli", "_brotli", "brotlicffi"), "Decompressor"),
    "zlib": "decompressobj",
    "bz2": "BZ2Decompressor",
    "lzma": "LZMADecompressor",
    **dict.fromkeys(("compression", "backports", "kombu"), "ZstdDecompressor"),
}


class UnreadableBody(ValueError):
    """A body cannot be read or written; the text is the reason."""


def loads(raw: bytes, content_type: object, load_json: Callable[[bytes], Any] = json.loads) -> Any:
    """Deserializes a body, within bounds. Objects in a pickle come out without their content.

    Args:
        raw: The body as its serializer wrote it, see ``unpacked``.
        content_type: Content type of the message.
        load_json: Reads JSON. The default returns objects of types that only the app knows as plain JSON values.

    Raises:
        Exception: Of any type. The body is damaged, or its format is not read here.
    """
    if content_type == JSON:
        return load_json(raw)
    if content_type == PICKLE:
        if _extension_cache:  # a pickle may name a class in it by number, and then ``find_class`` is not called
            raise UnreadableBody("pickles are not read where copyreg's extensions are in use")
        return _unpickled(raw)
    if content_type == YAML:
        return _of_yaml(raw)
    if content_type == MSGPACK:
        import msgpack

        return msgpack.unpackb(raw, raw=False)
    raise UnreadableBody(f"bodies in {content_type!r} are not read")


def dumps(content: Any, message: Message) -> str:
    """Serializes content as a new body of a message, in the message's format, compression and encoding.

    Raises:
        Exception: Of any type. The content cannot be written, or this format is not written here.
    """
    content_type = message.get("content-type")
    if content_type == JSON:
        written: str | bytes = json.dumps(content)
    elif content_type == YAML:
        import yaml

        written = yaml.safe_dump(content)
    elif content_type == MSGPACK:
        import msgpack

        written = msgpack.packb(content, use_bin_type=True)
    else:
        raise UnreadableBody("it is in a pickle" if content_type == PICKLE else f"it is in {content_type!r}")
    return _packed(written, message)


def unpacked(message: Message) -> bytes:
    """Returns the body of a message as its serializer wrote it, up to ``MOST_BYTES`` of one that is compressed.

    Raises:
        Exception: Of any type. The body is damaged, or compressed by something that is not kombu's own.
    """
    raw = message.get("body") or b""
    if _is_base64(message):
        raw = b64decode(raw)
    method = headers_of(message).get("compression")
    if method:
        raw = _decompressed(_of_kombu(compression.get_decoder(method)), as_bytes(raw))
    return raw.encode() if isinstance(raw, str) else raw


def _packed(written: str | bytes, message: Message) -> str:
    """Returns a body as the message keeps it: the reverse of ``unpacked``."""
    raw = written.encode() if isinstance(written, str) else written
    method = headers_of(message).get("compression")
    if method:
        raw = _of_kombu(compression.get_encoder(method)[0])(raw)
    return b64encode(raw).decode() if _is_base64(message) else raw.decode()


def _is_base64(message: Message) -> bool:
    return properties_of(message).get("body_encoding") == "base64"


def _of_kombu(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that compresses or decompresses, if kombu itself registers it.

    Raises:
        UnreadableBody: Somebody else has registered it.
    """
    if _module_of(function).partition(".")[0] not in _COMPRESSING:
        raise UnreadableBody(f"{function!r} is not a compression of kombu's own")
    return function


def _module_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__module__", None) or ""


def _decompressed(function: Callable[..., Any], raw: bytes) -> bytes:
    """Does what a function of kombu's does that decompresses, in as much memory as the bounds allow."""
    name = _module_of(function)
    decompressor = _COMPRESSING[name.partition(".")[0]]
    # Before 5.7, kombu has functions of its own around the package zstandard.
    make = getattr(import_module("zstandard" if name.startswith("kombu.") else name), decompressor)
    if name.startswith("kombu."):
        found = make().stream_reader(raw).read(MOST_BYTES + 1)
        is_whole = len(found) <= MOST_BYTES
    elif decompressor == "Decompressor":
        found = (stream := make()).process(raw, output_buffer_limit=MOST_BYTES)
        is_whole = stream.is_finished()
    else:
        stream = make(memlimit=_LZMA_BYTES) if decompressor == "LZMADecompressor" else make()
        found, is_whole = stream.decompress(raw, MOST_BYTES), stream.eof
    if not is_whole:
        raise UnreadableBody(f"it is cut off, or has more than {MOST_BYTES:,} bytes")
    return bytes(found)


def _unpickled(raw: bytes) -> Any:
    _check_size(raw)
    _check_hashing(raw)
    content = _InertUnpickler(BytesIO(raw)).load()
    _check_memory(content)
    return content


def _check_hashing(raw: bytes) -> None:
    """Raises UnreadableBody for a pickle whose keys take too long to hash, or whose memo is too large.

    A tuple of two that are one tuple, and so on, has parts without end, and its hash is made of each of them. So this
    follows on the stack how many parts each value has of which a hash is made.
    """
    stack, marks, memo, hashed = list[int](), list[int](), dict[int, int](), 0
    for operation, argument, _ in genops(raw):
        name = operation.name
        if name in _NOTING:
            if (argument or 0) > len(raw):  # the memo has room for so many
                raise UnreadableBody("its memo is too large")
            memo[len(memo) if argument is None else int(argument)] = stack[-1]
        elif name == "MARK":
            marks.append(len(stack))
        else:
            taken, parts = _taken(operation, stack, marks), 1
            if "TUPLE" in name or name == "FROZENSET":
                parts += sum(taken)
            elif name == "DUP":
                [parts] = taken
            elif "GET" in name:
                parts = memo[int(argument or 0)]
            hashed += sum(taken) if name in _HASHING else 0
            stack += [min(parts, MOST_BYTES)] * len(operation.stack_after)
    if hashed > MOST_BYTES // _VALUE_BYTES:
        raise UnreadableBody("its keys are too large")


def _taken(operation: OpcodeInfo, stack: list[int], marks: list[int]) -> list[int]:
    """Takes from a stack what an operation of a pickle takes."""
    before = operation.stack_before
    if markobject in before:
        at = marks.pop() - before.index(markobject)
    elif operation.name == "POP" and marks and marks[-1] == len(stack):
        at = marks.pop()
    else:
        at = len(stack) - len(before)
    taken, stack[at:] = stack[at:], []
    return taken


def _of_yaml(raw: bytes) -> Any:
    import yaml

    _check_size(raw)
    make, depth = getattr(yaml, "CSafeLoader", yaml.SafeLoader), 0
    for event in yaml.parse(raw, make):  # first: libyaml's own loader ends the process at too deep a nesting
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise UnreadableBody(f"it is nested more than {MOST_DEPTH} levels deep")
    loader = make(raw)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check_memory(node)  # before the content, because mappings are merged in it
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_size(raw: bytes) -> None:
    if len(raw) > MOST_SLOW_BYTES:
        raise UnreadableBody(f"it has more than {MOST_SLOW_BYTES:,} bytes")


def _check_memory(content: Any) -> None:
    """Raises UnreadableBody for content that is too large where each part is written as often as it stands there."""
    known: dict[int, int] = {}

    def memory(one: Any) -> int:
        if id(one) not in known:
            known[id(one)] = MOST_BYTES + 1  # of what contains itself
            parts = one.value if hasattr(one, "start_mark") else one
            found = _VALUE_BYTES
            if _is_long(one, parts):
                raise UnreadableBody("it has an integer that is too long")
            if isinstance(parts, dict):
                parts = chain(parts, parts.values())
            if isinstance(parts, str | bytes | bytearray):
                found += len(parts)
            elif isinstance(parts, Iterable):
                found += sum(map(memory, parts))
            known[id(one)] = min(found, MOST_BYTES + 1)
        return known[id(one)]

    if memory(content) > MOST_BYTES:
        raise UnreadableBody(f"its content has more than about {MOST_BYTES:,} bytes")


def _is_long(one: Any, value: Any) -> bool:
    """Whether a value, or that of a node, is an integer that is too long."""
    if isinstance(value, int):
        return value.bit_length() > MOST_BITS
    return getattr(one, "tag", None) == "tag:yaml.org,2002:int" and len(value) > MOST_DIGITS


class _Inert:
    """Takes the place of every class in a pickle, so that reading one runs nothing."""

    def __new__(cls, *args: object, **kwargs: object) -> "_Inert":
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None: ...

    def append(self, item: object) -> None: ...

    def extend(self, items: object) -> None: ...

    def __setitem__(self, key: object, value: object) -> None: ...


class _InertUnpickler(Unpickler):
    def find_class(self, module: str, name: str) -> type[_Inert]:
        return _Inert
