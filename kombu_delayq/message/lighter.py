"""Messages that take less room: a body that is text stays text, and long texts that show arguments are cut."""

from kombu_delayq.message.fields import Message

#: ``body_encoding`` of a body that is text. kombu leaves such a body as it is.
TEXT = "utf-8"
#: End of a text that was cut.
CUT = "...cut"


def cut(text: str, most: int | None) -> str:
    """Returns a text of ``argsrepr`` or ``kwargsrepr`` with at most so many characters, and ``CUT`` if there are more.

    A text that was cut already stays as it is. most: None for no limit.
    """
    return text if most is None or len(text) <= most else f"{text[:most]}{CUT}"


def lighten(message: Message, body: object, most: int | None, *, text_bodies: bool) -> None:
    """Makes a message lighter that kombu has just encoded.

    Args:
        message: The message. Its headers are replaced, not changed: the caller may look at them once more.
        body: The body, before kombu encoded it.
        most: Most characters of ``argsrepr`` and ``kwargsrepr``; None for no limit.
        text_bodies: Whether a body that is text stays text.
    """
    headers = message["headers"]
    shown = {name: headers[name] for name in ("argsrepr", "kwargsrepr") if isinstance(headers.get(name), str)}
    if most is not None and any(len(text) > most for text in shown.values()):
        message["headers"] = headers | {name: cut(text, most) for name, text in shown.items()}
    if text_bodies and isinstance(body, str):
        message["body"], message["properties"]["body_encoding"] = body, TEXT
