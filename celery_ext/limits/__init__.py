"""Limits by key: how many tasks of a tenant, a user or a service run at once, begin in a second, and take turns."""

from typing import TYPE_CHECKING

from celery_ext.limits.key import LIMIT_HEADER, LimitDeclaration, add_key, declared_limit, read_key
from kombu_delayq.later import later

if TYPE_CHECKING:
    from celery_ext.limits.backoff import Backoff
    from celery_ext.limits.declare import declare_limits
    from celery_ext.limits.giving_back import give_back
    from celery_ext.limits.limit import Limit
    from celery_ext.limits.store import KeyState, Limits, LimitStore, ParkedMessage

__all__ = [
    "LIMIT_HEADER",
    "Backoff",
    "KeyState",
    "Limit",
    "LimitDeclaration",
    "LimitStore",
    "Limits",
    "ParkedMessage",
    "add_key",
    "declare_limits",
    "declared_limit",
    "give_back",
    "read_key",
]

__getattr__ = later(
    __name__,
    {
        "Backoff": "backoff",
        "declare_limits": "declare",
        "give_back": "giving_back",
        "Limit": "limit",
        **dict.fromkeys(("KeyState", "Limits", "LimitStore", "ParkedMessage"), "store"),
    },
)
