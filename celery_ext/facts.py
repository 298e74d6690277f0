"""The versions and options of a process, which should be the same in all processes of a broker."""

import json
import platform
from time import time
from typing import Any

import celery
import kombu
import redis

import kombu_delayq
from kombu_delayq import hooks
from kombu_delayq.errors import InvalidOptions
from kombu_delayq.options import ALIKE as OF_US
from kombu_delayq.options import STORES

#: Field of a worker's reply to ``inspect stats`` that has the facts.
FIELD = "delayq"
#: Options that all processes of a broker need alike: with different ones, messages go where others do not look.
ALIKE = ("global_keyprefix", "sep", "priority_steps", "fanout_prefix", "unacked_key")
#: Options that should be alike, because it is not said which process goes by its own.
BETTER_ALIKE = ("visibility_timeout", *OF_US)


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
    found |= {name: _shown(name, found[name]) for name in STORES if found[name]}
    return as_json(found)


def as_json(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options as JSON has them, where 5 and 5.0 are the same number."""

    def number(text: str) -> float:
        value = float(text)
        return int(value) if value.is_integer() else value

    found: dict[str, Any] = json.loads(json.dumps(options, default=dict), parse_float=number)
    return found


def _shown(option: str, value: Any) -> str:
    """Returns the value of an option without its password; of one that is not usable, why."""
    try:
        return str(hooks.store_class({option: value}).shown(value))
    except InvalidOptions as error:  # such as without an extra
        return str(error)
