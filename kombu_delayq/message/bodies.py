"""Bodies of messages: read and written in formats that run no code, and made compact."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from copyreg import _extension_cache  # type: ignore[attr-defined]
from io import BytesIO
from pickle import Unpickler
from types import MappingProxyType
from typing import Any

from kombu import compression

from kombu_delayq.message.fields import Message, headers_of, properties_of, task_id_of

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


#: ``body_encoding`` of a body that is text. kombu leaves such a body as it is.
TEXT = "utf-8"
#: Headers of a task, and the value that ``task.request`` has for each that is missing. Left alone are ``eta``, by which
#: messages are delayed, and those whose default is another one: a task without ``ignore_result`` has that of its class.
#: Source: celery.app.task.Context, of Celery 5.5 to 5.7.
DEFAULTS: Mapping[str, object] = MappingProxyType(
    {
        **dict.fromkeys(("shadow", "expires", "group", "group_index", "parent_id", "stamped_headers")),
        **dict.fromkeys(("retries", "replaced_task_nesting"), 0),
    }
)
#: End of a body in JSON of a task without callbacks and without a workflow.
_NO_EMBED = ', {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'


def without_defaults(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the headers of a task without those that have their default."""
    return {name: value for name, value in headers.items() if name not in DEFAULTS or not _is_default(name, value)}


def without_nulls(body: str) -> str:
    """Returns the body of a task, in JSON, with an empty object for callbacks and workflow if there are none."""
    return f"{body[: -len(_NO_EMBED)]}, {{}}]" if body.endswith(_NO_EMBED) else body


def omit_defaults(message: Message) -> None:
    """Makes a task of protocol 2 compact that kombu is about to encode.

    Args:
        message: The message. Its headers are replaced, not changed: the caller may look at them once more.
    """
    headers, body = message["headers"], message["body"]
    if task_id_of(headers) is None:
        return
    message["headers"] = without_defaults(headers)
    if isinstance(body, str) and message["content-type"] == JSON:
        message["body"] = without_nulls(body)


def keep_text(message: Message, body: object) -> None:
    """Makes a message compact that kombu has just encoded, if its body is text.

    Args:
        message: The message.
        body: The body, before kombu encoded it.
    """
    if isinstance(body, str):
        message["body"], message["properties"]["body_encoding"] = body, TEXT


def _is_default(name: str, value: object) -> bool:
    default = DEFAULTS[name]
    return type(value) is type(default) and value == default  # 0, and not False
