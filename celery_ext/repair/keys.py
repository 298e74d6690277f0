"""Names of the keys that kombu makes for remote control and for events."""

import re

from kombu_delayq.store import KeyNames, glob_escaped

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_REPLIES = re.compile(rf"{_UUID}\.(reply\..+\.pidbox)", re.DOTALL)


class ControlKeys(KeyNames):
    """Keys that kombu makes for single processes: their queues of replies, and names of their queues.

    Source: kombu.pidbox.Mailbox, celery.events.event.
    """

    @property
    def of_any_mailbox(self) -> str:
        """Pattern for SCAN that the keys of all mailboxes match."""
        return f"{glob_escaped(self._of.prefix)}*.pidbox"

    @property
    def events(self) -> str:
        """The set of bindings of the queues of events."""
        return self._of.bindings("celeryev")

    def kind_of(self, key: str) -> str:
        """Returns the type of a key that a process may leave behind; empty for another key.

        Celery publishes commands and events, so nobody reads the bindings of their queues.
        """
        if self.exchange_of(key):
            return "list"
        of_replies = key.startswith(self._of.bindings("reply.")) and key.endswith(".pidbox")
        return "set" if of_replies or key in (self._of.bindings("celery.pidbox"), self.events) else ""

    def exchange_of(self, key: str) -> str:
        """Returns the exchange of a queue of replies; empty for another key."""
        name = key.removeprefix(self._of.prefix) if key.startswith(self._of.prefix) else ""
        found = _REPLIES.fullmatch(name)
        return found[1] if found else ""

    def binding_of(self, key: str) -> tuple[str, str]:
        """Returns the set of bindings of a queue of replies, and the member for it."""
        queue, exchange = key.removeprefix(self._of.prefix), self.exchange_of(key)
        routing_key = queue.removesuffix(f".{exchange}")
        return self._of.bindings(exchange), self._of.separator.join([routing_key, "", queue])
