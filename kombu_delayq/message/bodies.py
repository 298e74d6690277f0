"""Reads and writes the bodies of messages, in formats that run no code when they are read.

The store reads a body before a consumer has checked whether it accepts the content type. A serializer or compression
that an app has registered with kombu may run code, so this module uses none of them.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from copyreg import _extension_cache  # type: ignore[attr-defined]
from io import BytesIO
from pickle import Unpickler
from typing import Any

from kombu import compression

from kombu_delayq.message.fields import Message, headers_of, properties_of

JSON, YAML, MSGPACK = "application/json", "application/x-yaml", "application/x-msgpack"
PICKLE = "application/x-python-serialize"
#: The modules whose functions kombu itself registers as compressions.
_COMPRESSING = {
    *("zlib", "bz2", "lzma", "brotli", "_brotli", "brotlicffi"),
    *("compression", "backports", "zstandard", "kombu"),
}


class UnreadableBody(ValueError):
    """A body cannot be read or written; the text is the reason."""


def loads(raw: bytes, content_type: object, load_json: Callable[[bytes], Any] = json.loads) -> Any:
    """Deserializes a body. Objects in a pickle come out without their content.

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
        return _InertUnpickler(BytesIO(raw)).load()
    if content_type == YAML:
        import yaml

        return yaml.safe_load(raw)
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
    """Returns the body of a message as its serializer wrote it.

    Raises:
        Exception: Of any type. The body is damaged, or compressed by something that is not kombu's own.
    """
    raw = message.get("body") or b""
    if _is_base64(message):
        raw = b64decode(raw)
    method = headers_of(message).get("compression")
    if method:
        raw = _of_kombu(compression.get_decoder(method))(raw)
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
    module = getattr(function, "__module__", None) or ""
    if module.partition(".")[0] not in _COMPRESSING:
        raise UnreadableBody(f"{function!r} is not a compression of kombu's own")
    return function


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
