"""Lets callers in: by a token, by a session of the browser, by a header of a proxy, or as the app around says."""

import hmac
import logging
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from fnmatch import fnmatchcase
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from pathlib import Path
from time import time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve.access.identity import LOCAL, NOBODY, OPERATING, READING, Caller, unauthorized
from celery_ext.serve.access.tokens import PREFIX, RateLimiter, Token, TokenFile, Tokens
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.settings import ServeSettings

logger = logging.getLogger(__name__)


#: Methods that change nothing.
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: An IPv6 address in brackets, or a name, and a port.
_HOST = re.compile(r"(?:\[([^]]+)\]|([^\[\]:]+))(?::[0-9]{1,5})?")
#: By one of these a browser can be told from other programs.
BROWSER_HEADERS = frozenset({"origin", "sec-fetch-site"})
#: What ``Sec-Fetch-Site`` says of a request of our own page, and of an address that somebody typed.
_OWN_SITE = frozenset({"same-origin", "none"})


def check_host(host: str, allowed: Iterable[str]) -> None:
    """Refuses a request that was sent to a name which is not ours.

    A page of another site can give its own name the address of this machine. To the browser the answers are then those
    of that site, and its scripts may read them. An address in place of a name cannot be given away like that.

    Args:
        host: The header ``Host``.
        allowed: Patterns of further names, such as ``*.example.org``.

    Raises:
        Problem: 421.
    """
    name = _name_of(host)
    if name == "localhost" or name.endswith(".localhost") or _is_address(name):
        return
    if not any(fnmatchcase(name, pattern.lower()) for pattern in allowed):
        raise Problem(
            421, "the request names a host that this server does not go by; see --allowed-host", "unknown-host"
        )


def check_origin(method: str, headers: Mapping[str, str]) -> None:
    """Refuses a request that a page of another site may have caused.

    Browsers say in ``Sec-Fetch-Site`` who caused a request, on https and on localhost. Elsewhere ``Origin`` has to be
    the host that was asked. A request with neither comes from a program, which can send a token, or ``Origin``.
    A request that changes nothing is refused only where a script of another site sent it: its answer would be of no use
    to the script, and a search costs Redis something.

    Args:
        method: Of HTTP.
        headers: By name in small letters.

    Raises:
        Problem: 403.
    """
    site = headers.get("sec-fetch-site")
    if method in SAFE:
        refused = site not in (None, *_OWN_SITE) and headers.get("sec-fetch-mode", "navigate") != "navigate"
    elif site is not None:
        refused = site not in _OWN_SITE
    else:
        origin = headers.get("origin", "")
        refused = not (authority := _authority_of(origin)) or authority != headers.get("host", "").lower()
    if refused:
        raise Problem(403, "the request comes from another site, or does not say from which", "cross-site")


def _authority_of(origin: str) -> str:
    """Returns host and port of an origin as a browser would write them in ``Host``; nothing for ``null``."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _name_of(host: str) -> str:
    """Returns the name in a header ``Host``, without port, dot at the end and brackets."""
    found = _HOST.fullmatch(host.lower())
    return (found[1] or found[2].rstrip(".")) if found else ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


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
            end = min(end, token.expires.timestamp())
        value = f"{urlsafe_b64encode(token.name.encode()).decode()}.{int(end)}.{_sign(token, int(end))}"
        response.set_cookie(COOKIE, value, max_age=int(end - time()), **_cookie_of(request))
        return token


def log_out(request: Request, response: Response) -> None:
    """Takes the cookie from a browser."""
    response.delete_cookie(COOKIE, **_cookie_of(request))


def _cookie_of(request: Request) -> dict[str, Any]:
    path, is_secure = request.scope.get("root_path") or "/", request.url.scheme == "https"
    return {"path": path, "secure": is_secure, "httponly": True, "samesite": "strict"}


def _sign(token: Token, end: int) -> str:
    return hmac.digest(bytes.fromhex(token.sha256), f"delayq session {token.name} {end}".encode(), "sha256").hex()


#: Longest name of a user, in characters.
_LONGEST_NAME = 128
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*")


class TrustedProxies:
    """The peers that may name users, and the prefix and scheme by which browsers call the server.

    Args:
        addresses: Addresses or networks, such as ``10.0.0.0/8``.
        user_header: Name of the header with the user's name; None without such a proxy.

    Raises:
        ValueError: One is no address and no network.
    """

    def __init__(self, addresses: Iterable[str], user_header: str | None) -> None:
        self._networks = [ip_network(address, strict=False) for address in addresses]
        self._header = user_header
        self._warned = False

    def trusts(self, peer: str | None) -> bool:
        """Whether a peer, named by its address, is one of the proxies."""
        try:
            address = ip_address(peer or "")
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def user_of(self, request: Request) -> str | None:
        """Returns the user whom a proxy names; None if no proxy names one.

        Raises:
            Problem: 400: the header came twice, or its value is no name. A proxy that passes on what a client sent,
                beside its own header, would let the client choose.
        """
        names = request.headers.getlist(self._header) if self._header else []
        if not names:
            return None
        if not self.trusts(_peer_of(request)):
            if not self._warned:
                self._warned = True
                logger.warning(
                    "the header %s of %s is ignored: it is no --trusted-proxy", self._header, _peer_of(request)
                )
            return None
        [name, *others] = names
        if others or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
            raise Problem(400, f"the proxy sent no single name in {self._header}", "bad-user")
        return name.strip()

    def prefix_of(self, request: Request) -> str | None:
        """Returns the prefix that a proxy took from the path; None if no proxy says so.

        Raises:
            Problem: 400: it is no path.
        """
        prefix = self._said(request, "x-forwarded-prefix")
        if prefix is not None and not _PREFIX.fullmatch(prefix.rstrip("/")):
            raise bad_request("X-Forwarded-Prefix is no path")
        return None if prefix is None else prefix.rstrip("/")

    def scheme_of(self, request: Request) -> str | None:
        """Returns the scheme by which a browser called a proxy; None if no proxy says so."""
        scheme = self._said(request, "x-forwarded-proto")
        return scheme if scheme in ("http", "https") else None

    def _said(self, request: Request, header: str) -> str | None:
        """Returns what the nearest proxy says; None if it is not one of ours."""
        if not self._networks or header not in request.headers or not self.trusts(_peer_of(request)):
            return None
        return request.headers.getlist(header)[-1].rpartition(",")[2].strip()


def _peer_of(request: Request) -> str | None:
    return request.client.host if request.client else None


class Proof(Enum):
    """How a caller is known."""

    BEARER = "bearer"
    SESSION = "session"
    PROXY = "proxy"
    APP = "app"
    NONE = "none"


class Visit(NamedTuple):
    """The caller that sent a request.

    Attributes:
        caller: Who, and what they may do.
        proof: How the caller is known.
    """

    caller: Caller
    proof: Proof


class Gate:
    """Looks at each request before anything else does.

    Args:
        settings: Those of the server.

    Raises:
        InvalidTokens: The file of tokens cannot be read.
        ValueError: A trusted proxy is no address.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._file = TokenFile(Path(settings.tokens)) if settings.tokens else None
        self._limiter = RateLimiter()
        self.proxies = TrustedProxies(settings.trusted_proxies, settings.trust_header)
        self.sessions = Sessions(self._tokens)

    def admit(self, request: Request) -> Visit:
        """Returns who sent a request; for a request without proof, nobody, who may only what is open to all.

        Raises:
            Problem: 401, 403, 421 or 429: nobody may send it like that.
        """
        visit = self._by_token(request) or self._without_token(request)
        if not self._settings.allow_write:
            visit = visit._replace(caller=replace(visit.caller, actions=visit.caller.actions & READING))
        return visit

    def _tokens(self) -> Tokens:
        return self._file.tokens if self._file else Tokens()

    def _by_token(self, request: Request) -> Visit | None:
        """Returns the holder of a token. No page of another site can make a browser send one.

        A token of another kind is that of a proxy in front, which passes it on.
        """
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not (secret.startswith(PREFIX) or self._settings.trust_header is None):
            return None
        token = self._tokens().of_secret(secret)
        if token is None:
            raise unauthorized("the token is not known here", invalid=True)
        if token.has_expired():
            raise unauthorized("the token has expired", invalid=True)
        self._count(token)
        return Visit(token.caller, Proof.BEARER)

    def _without_token(self, request: Request) -> Visit:
        check_host(request.headers.get("host", ""), self._settings.allowed_hosts)
        visit = self._visit_of_browser(request)
        # A program without proof gets to know that it needs some; what a browser proves, it proves for any page.
        if visit.proof is not Proof.NONE or not BROWSER_HEADERS.isdisjoint(request.headers):
            check_origin(request.method, request.headers)
        return visit

    def _visit_of_browser(self, request: Request) -> Visit:
        if token := self.sessions.token_of(request):
            self._count(token)
            return Visit(token.caller, Proof.SESSION)
        if user := self.proxies.user_of(request):
            return Visit(Caller(user, OPERATING), Proof.PROXY)
        identify = self._settings.identify
        if caller := identify(request) if identify else None:
            return Visit(caller, Proof.APP)
        return Visit(LOCAL if self._settings.lets_anybody_look else NOBODY, Proof.NONE)

    def _count(self, token: Token) -> None:
        wait_s = self._limiter.wait_s(token.name, token.rate) if token.rate else 0
        if wait_s:
            after = {"Retry-After": str(ceil(wait_s))}
            raise Problem(429, f"{token.name} sends more than its rate allows", "too-many-requests", headers=after)


def gate_of(request: Request) -> Gate:
    """Returns the gate that a request passed, for its sessions."""
    gate: Gate = request.state.gate
    return gate
