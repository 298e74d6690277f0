"""A Redis that takes no writes because it is not, or not safely, the primary: told as a lost connection.

kombu, Celery and publishers connect again then, and come to the primary wherever the address leads to it.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from redis.connection import Connection
from redis.exceptions import MasterDownError, ReadOnlyError, ResponseError
from redis.sentinel import SentinelManagedConnection

#: Of replicas: for a write; for one without its primary. The client takes these codes off the text.
_REFUSALS = (ReadOnlyError, MasterDownError)
#: The same as Redis 6.2 has them inside the text of a script's error; to who waits in BRPOP as a primary becomes a
#: replica; of a primary that has fewer replicas than ``min-replicas-to-write`` asks for, for a write.
_REFUSAL = re.compile(r"UNBLOCKED |NOREPLICAS |.* -(READONLY|MASTERDOWN|NOREPLICAS) ")

_Connection: Any = Connection if TYPE_CHECKING else object


class NotPrimary(ResponseError, OSError):
    """Redis takes no writes: it is a replica, or a primary that has lost its replicas.

    For kombu and Celery, to which an ``OSError`` is a lost connection, it is one. For the Redis client it is an answer:
    a lost connection makes its transactions begin again at once, without end where the same Redis answers again.
    """


class _NoticesDemotion(_Connection):
    """Stands to the left of a connection's class: all commands and replies pass it."""

    told: Callable[[], object]
    _is_lost = False

    def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        if self._is_lost:
            self._is_lost = False
            self.disconnect()
            self.connect()  # to wherever the name or the Sentinels lead now
        super().send_packed_command(*args, **kwargs)

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        # The Sentinels' own class would make a lost connection of READONLY.
        own: Any = SentinelManagedConnection if isinstance(self, SentinelManagedConnection) else _NoticesDemotion
        try:
            return super(own, self).read_response(*args, **kwargs)
        except ResponseError as error:
            if not isinstance(error, _REFUSALS) and not _REFUSAL.match(str(error)):
                raise
            self._is_lost = True
            self.told()
            raise NotPrimary(f"this Redis is not the primary, or takes no writes now: {error}") from error


def noticing_demotion(connection_class: type[Any], told: Callable[[], object]) -> type[Any]:
    """Returns a class of connections that are lost when Redis takes no writes as it is not the primary.

    Args:
        connection_class: The class as it would be.
        told: Is called then.
    """
    members = {"told": staticmethod(told)}
    return type(connection_class.__name__, (_NoticesDemotion, connection_class), members)
