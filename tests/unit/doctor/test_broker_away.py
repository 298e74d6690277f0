"""What to do about a broker that cannot be used."""

from typing import Any

import pytest
from kombu.connection import Connection
from redis.exceptions import AuthenticationError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_ext.doctor import CHECKS, checks
from kombu_delayq.errors import InvalidBrokerURL


@pytest.mark.parametrize(
    ("error", "do"),
    [
        (
            RedisConnectionError("Error 111 connecting to localhost:1. Connection refused."),
            "start it, or mend host, port",
        ),
        (RedisTimeoutError("Timeout connecting to server"), "only where the server speaks TLS"),
        (RedisConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"), "?ssl_ca_certs=PATH"),
        (AuthenticationError("invalid username-password pair"), "mend the user and the password"),
        (InvalidBrokerURL("the scheme of the broker URL is missing"), "mend the URL as the message says"),
        (ResponseError("DB index is out of range"), "mend what the error says"),
    ],
)
def test_each_reason_has_its_remedy(monkeypatch: pytest.MonkeyPatch, error: Exception, do: str) -> None:
    """What the server or the client says decides."""

    def refuse(connection: Any) -> None:
        raise error

    monkeypatch.setattr(checks, "open_store", refuse)
    clock = [check for check in CHECKS if check.name == "clock"]
    found, _ = checks.examine(clock, None, lambda: Connection("memory://"))
    assert (found.check, str(found.level), do in found.do) == ("broker", "error", True), found
