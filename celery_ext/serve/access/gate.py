"""Finds out who calls, and refuses what nobody may send."""

from dataclasses import replace
from enum import Enum
from math import ceil
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request

from celery_ext.serve.access.identity import LOCAL, NOBODY, OPERATING, READING, Caller, unauthorized
from celery_ext.serve.access.origins import BROWSER_HEADERS, check_host, check_origin
from celery_ext.serve.access.proxies import TrustedProxies
from celery_ext.serve.access.rates import RateLimiter
from celery_ext.serve.access.sessions import Sessions
from celery_ext.serve.access.tokens import PREFIX, Token, TokenFile, Tokens
from celery_ext.serve.problems import Problem
from celery_ext.serve.settings import ServeSettings


class Proof(Enum):
    """How a caller is known."""

    BEARER = "bearer"
    SESSION = "session"
    PROXY = "proxy"
    APP = "app"
    NONE = "none"


class Visit(NamedTuple):
    """Who sent a request.

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
