"""A Redis that takes no writes because it is not, or not safely, the primary: told as a lost connection.

kombu, Celery and publishers connect again then, and come to the primary wherever the address leads to it.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from redis.connection import Connection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MasterDownError, ReadOnlyError, ResponseError

#: Of replicas: for a write; for one without its primary. The client takes these codes off the text.
_REFUSALS = (ReadOnlyError, MasterDownError)
#: The same as Redis 6.2 has them inside the text of a script's error; to who waits in BRPOP as a primary becomes a
#: replica; of a primary that has fewer replicas than ``min-replicas-to-write`` asks for, for a write.
_REFUSAL = re.compile(r"UNBLOCKED |NOREPLICAS |.* -(READONLY|MASTERDOWN|NOREPLICAS) ")

_Connection: Any = Connection if TYPE_CHECKING else object


class _NoticesDemotion(_Connection):
    """Stands to the left of a connection's class: all replies pass it."""

    told: Callable[[], object]

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().read_response(*args, **kwargs)
        except ResponseError as error:
            if not isinstance(error, _REFUSALS) and not _REFUSAL.match(str(error)):
                raise
            self.disconnect()
            self.told()
            raise RedisConnectionError(f"this Redis is not the primary, or takes no writes now: {error}") from error


def noticing_demotion(connection_class: type[Any], told: Callable[[], object]) -> type[Any]:
    """Returns a class of connections that are lost when Redis takes no writes as it is not the primary.

    Args:
        connection_class: The class as it would be.
        told: Is called then.
    """
    members = {"told": staticmethod(told)}
    return type(connection_class.__name__, (_NoticesDemotion, connection_class), members)
