"""Sessions of browsers: a signed cookie in place of a token."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import datetime
from time import time

from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve.access.tokens import Token, Tokens

COOKIE = "delayq_session"
#: How long a session lasts at most, in s: a day of work.
SESSION_S = 12 * 3600


class Sessions:
    """Makes the cookies of those who log in with a token, and reads them again.

    A cookie has the token's name and an end, signed with the token's hash. So the server remembers nothing, every
    process that reads the same file knows the cookie, and a token that leaves the file ends its sessions.

    Args:
        tokens: Returns the tokens that there are now.
    """

    def __init__(self, tokens: Callable[[], Tokens]) -> None:
        self._tokens = tokens

    def token_of(self, request: Request) -> Token | None:
        """Returns the token that a browser logged in with; None without a session, or with one that is over."""
        try:
            name, end, signature = request.cookies[COOKIE].split(".")
            token = self._tokens().named(urlsafe_b64decode(name).decode())
            if token is None or not hmac.compare_digest(_sign(token, int(end)), signature) or int(end) <= time():
                return None
        except (KeyError, ValueError, TypeError):  # no cookie, or not one that we made
            return None
        return token

    def log_in(self, request: Request, response: Response, secret: str) -> Token | None:
        """Gives a browser a session, if it has a token.

        Args:
            request: The request, for the path and the scheme of the cookie.
            response: Gets the cookie.
            secret: What somebody typed.

        Returns:
            The token; None if there is none, or if it has expired: then there is no session.
        """
        token = self._tokens().of_secret(secret.strip())
        if token is None or token.has_expired():
            return None
        end = time() + SESSION_S
        if token.expires:
            end = min(end, _seconds(token.expires))
        value = f"{urlsafe_b64encode(token.name.encode()).decode()}.{int(end)}.{_sign(token, int(end))}"
        response.set_cookie(
            COOKIE,
            value,
            max_age=int(end - time()),
            path=_path_of(request),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return token


def log_out(request: Request, response: Response) -> None:
    """Takes the cookie from a browser."""
    response.delete_cookie(
        COOKIE,
        path=_path_of(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def _path_of(request: Request) -> str:
    path: str = request.scope.get("root_path") or "/"
    return path


def _seconds(moment: datetime) -> float:
    return moment.timestamp()


def _sign(token: Token, end: int) -> str:
    return hmac.digest(bytes.fromhex(token.sha256), f"delayq session {token.name} {end}".encode(), "sha256").hex()
