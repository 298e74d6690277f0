"""The log of who did what to waiting messages. Knows no Redis."""

import json
import os
import socket
from collections.abc import Mapping
from getpass import getuser
from typing import Any

from kombu.log import get_logger

#: Its name, ``kombu_delayq.audit``, is public.
logger = get_logger(__name__)

#: A change of so many messages notes that it begins.
MANY = 1000


class ChangeLog:
    """Notes who did what, in the log alone."""

    def note(self, who: str, action: str, what: Mapping[str, Any], count: int) -> bool:
        """Notes what somebody has done, with the arguments of ``log_change``.

        Returns:
            Whether the note is wherever it should be.
        """
        log_change(who, action, what, count)
        return True

    def note_begin(self, who: str, action: str, what: Mapping[str, Any], of: int) -> None:
        """Notes that somebody begins to change many messages, because a process that is killed notes no end.

        The line counts no message, and its ``what`` has ``begun``. Fewer than ``MANY`` messages leave none.

        Args:
            who: As of ``note``.
            action: As of ``note``.
            what: As of ``note``.
            of: How many messages are to change.
        """
        if of >= MANY:
            self.note(who, action, {**what, "of": of, "begun": True}, 0)


def log_change(who: str, action: str, what: Mapping[str, Any], count: int) -> None:
    """Logs what somebody has done, as one line of JSON; the record has the same in its attribute ``audit``.

    Args:
        who: Who did it.
        action: What was done, such as ``cancel``.
        what: To what it was done: values that JSON can have, by name.
        count: To how many messages.
    """
    line = {"who": who, "action": action, "count": count, "what": dict(what)}
    logger.info("audit: %s", json.dumps(line), extra={"audit": line})


def this_user() -> str:
    """Returns who runs this process, as ``user@host``."""
    try:
        user = getuser()
    except (OSError, KeyError, ImportError):  # the user has no name here, as in many containers
        user = f"uid {os.getuid()}" if hasattr(os, "getuid") else "somebody"
    return f"{user}@{socket.gethostname()}"
