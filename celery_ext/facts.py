"""The versions and options of a process, which should be the same in all processes of a broker."""

import json
import platform
from time import time
from typing import Any

import celery
import kombu
import redis

import kombu_delayq
from kombu_delayq.errors import InvalidOptions

#: Field of a worker's reply to ``inspect stats`` that has the facts.
FIELD = "delayq"
#: Options that all processes of a broker need alike: with different ones, messages go where others do not look.
ALIKE = ("global_keyprefix", "sep", "priority_steps", "fanout_prefix", "unacked_key")
#: Options that should be alike, because it is not said which process goes by its own.
BETTER_ALIKE = (
    *("visibility_timeout", "consume", "layout", "delivery_limit", "dead_letter_queue", "max_delay"),
    *("overdue", "max_lateness", "transfer_rate"),
    *("journal_url", "journal", "journal_horizon", "journal_lead", "journal_restore"),
)


def facts_of(channel: Any) -> dict[str, Any]:
    """Returns the facts of this process, as JSON has them. They have no password.

    Args:
        channel: A channel of our transport.

    Returns:
        ``versions`` by package, ``options`` by name, and ``clock``, s since the epoch.
    """
    return {"versions": versions(), "options": options_of(channel), "clock": time()}


def versions() -> dict[str, str]:
    """Returns the versions of this process, by package."""
    packages = {package.__name__: str(package.__version__) for package in (celery, kombu, redis)}
    return {"kombu_delayq": kombu_delayq.__version__, **packages, "python": platform.python_version()}


def options_of(channel: Any) -> dict[str, Any]:
    """Returns the options of a channel that should be alike, as JSON has them."""
    ours = channel.options
    names = (*ALIKE, *BETTER_ALIKE)
    found = {name: getattr(ours, name) if hasattr(ours, name) else getattr(channel, name) for name in names}
    found["journal_url"] = ours.journal_url and _journal_shown(ours.journal_url)
    return as_json(found)


def as_json(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options as JSON has them, where 5 and 5.0 are the same number."""

    def number(text: str) -> float:
        value = float(text)
        return int(value) if value.is_integer() else value

    found: dict[str, Any] = json.loads(json.dumps(options, default=dict), parse_float=number)
    return found


def _journal_shown(url: str) -> str:
    """Returns the URL of a journal's database without its password; of one that is not usable, why."""
    try:
        from celery_ext.journal import parse_url, shown

        return shown(parse_url(url))
    except (ImportError, InvalidOptions) as error:  # such as without the extra `journal`
        return str(error)
