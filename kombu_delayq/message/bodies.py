"""Reads and writes the bodies of messages, in formats that run nothing of what is in them. Knows no Redis.

A body is looked into before its consumer has checked whether it accepts its content type. So no serializer and no
compression that somebody has registered with kombu is asked here, for it may run code.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from copyreg import _extension_cache  # type: ignore[attr-defined]
from io import BytesIO
from pickle import Unpickler
from typing import Any

from kombu import compression

JSON, YAML, MSGPACK = "application/json", "application/x-yaml", "application/x-msgpack"
PICKLE = "application/x-python-serialize"
#: The modules whose functions kombu itself registers as compressions.
_COMPRESSING = {
    *("zlib", "bz2", "lzma", "brotli", "_brotli", "brotlicffi"),
    *("compression", "backports", "zstandard", "kombu"),
}


class UnreadableBody(ValueError):
    """A body is not looked into, for this reason."""


def read(raw: bytes, kind: object, load_json: Callable[[bytes], Any] = json.loads) -> Any:
    """Decodes a body. Objects in a pickle come out without their content.

    Args:
        raw: The body as its serializer wrote it, see ``opened``.
        kind: Its content type.
        load_json: Decodes JSON; by default objects of types that only the app knows stay as they are written.

    Raises:
        Exception: Any, when the body is damaged, or when it is in another format.
    """
    if kind == JSON:
        return load_json(raw)
    if kind == PICKLE:
        if _extension_cache:  # classes that a pickle names by a number, for which the unpickler is not asked
            raise UnreadableBody("pickles are not looked into where copyreg's extensions are in use")
        return _InertUnpickler(BytesIO(raw)).load()
    if kind == YAML:
        import yaml

        return yaml.safe_load(raw)
    if kind == MSGPACK:
        import msgpack

        return msgpack.unpackb(raw, raw=False)
    raise UnreadableBody(f"bodies in {kind!r} are not looked into")


def write(message: Mapping[str, Any], content: Any) -> str:
    """Returns a body with other content, in the format, compression and encoding of a message.

    Raises:
        Exception: Any, when the content cannot be written, or not in this format.
    """
    kind = message.get("content-type")
    if kind == JSON:
        written: str | bytes = json.dumps(content)
    elif kind == YAML:
        import yaml

        written = yaml.safe_dump(content)
    elif kind == MSGPACK:
        import msgpack

        written = msgpack.packb(content, use_bin_type=True)
    else:
        raise UnreadableBody("it is in a pickle" if kind == PICKLE else f"it is in {kind!r}")
    return _closed(message, written)


def opened(message: Mapping[str, Any]) -> bytes:
    """Returns the body of a message as its serializer wrote it.

    Raises:
        Exception: Any, when it is damaged, or compressed by something that is not kombu's own.
    """
    raw = message.get("body") or b""
    if (message.get("properties") or {}).get("body_encoding") == "base64":
        raw = b64decode(raw)
    method = (message.get("headers") or {}).get("compression")
    if method:
        raw = _own(compression.get_decoder(method))(raw)
    return raw.encode() if isinstance(raw, str) else raw


def _closed(message: Mapping[str, Any], written: str | bytes) -> str:
    """Returns a body as the message keeps it: the reverse of ``opened``."""
    raw = written.encode() if isinstance(written, str) else written
    method = (message.get("headers") or {}).get("compression")
    if method:
        raw = _own(compression.get_encoder(method)[0])(raw)
    return b64encode(raw).decode() if message["properties"].get("body_encoding") == "base64" else raw.decode()


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that compresses or decompresses, if it is one that kombu itself registers.

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
