"""Who gives each new connection its name and password, where these are tokens that soon end."""

import os
from functools import lru_cache
from typing import Any

from kombu.utils.imports import symbol_by_name

from kombu_delayq.errors import InvalidOptions

#: The parameters of a connection for which a provider stands.
_IN_PLACE_OF = ("username", "password")


def with_provider(params: dict[str, Any], given: object) -> dict[str, Any]:
    """Returns the parameters of connections with a credential provider in place of a name and a password.

    Args:
        params: The parameters, as redis-py takes them.
        given: The transport option ``credential_provider``; None leaves the parameters as they are.

    Raises:
        InvalidOptions: What a dotted path names cannot be imported, or is no provider.
    """
    if given is None:
        return params
    kept = {name: value for name, value in params.items() if name not in _IN_PLACE_OF}
    return {**kept, "credential_provider": _named(given, os.getpid()) if isinstance(given, str) else given}


@lru_cache
def _named(path: str, _pid: int) -> Any:
    """Returns the provider that a dotted path names: one for all connections of a process, as it may keep a token."""
    try:
        found = symbol_by_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidOptions(
            f"the transport option credential_provider={path!r} cannot be imported: {error}"
        ) from error
    provider = found() if isinstance(found, type) or not hasattr(found, "get_credentials") else found
    if not hasattr(provider, "get_credentials"):
        raise InvalidOptions(
            f"the transport option credential_provider={path!r} names a {type(provider).__name__}, which has no method "
            "get_credentials"
        )
    return provider
