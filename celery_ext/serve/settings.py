"""What a server may do and show, and to whom."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request

if TYPE_CHECKING:
    from celery_ext.serve.access.identity import Caller


@dataclass(frozen=True)
class ServeSettings:
    """Settings of one server.

    Attributes:
        allow_write: Whether callers may change anything. Without it, also a token changes nothing.
        hide_arguments: Whether arguments of tasks are kept from every answer and page.
        dead_letters: Names of further queues of dead letters, beside those that Redis knows.
        root_path: Path below which a proxy serves the page, such as ``/delayq``, whether it strips that or not.
        tokens: File with the hashes of tokens; None where there are none.
        trust_header: Name of the header in which a proxy names its user; None where there is no such proxy.
        trusted_proxies: Addresses or networks of the proxies that may set ``trust_header``.
        allowed_hosts: Names by which the server may be called, beside those of this machine's loopback; ``*`` for any.
        identify: Names the caller of a request, for an app that mounts the server; returns None for nobody.
        back_url: Address of the app around a mounted page, to which its menu leads back, such as that of an admin.
        anonymous: Whether a caller without proof may look; None: only if there are no other callers, so that neither
            tokens, a header of a proxy nor ``identify`` are given.
    """

    allow_write: bool = False
    hide_arguments: bool = False
    dead_letters: tuple[str, ...] = ()
    root_path: str = ""
    tokens: Path | str | None = None
    trust_header: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    identify: "Callable[[Request], Caller | None] | None" = None
    anonymous: bool | None = None
    back_url: str = ""

    @property
    def knows_callers(self) -> bool:
        """Whether callers can prove who they are."""
        return not (self.tokens is None and self.trust_header is None and self.identify is None)

    @property
    def lets_anybody_look(self) -> bool:
        """Whether a caller without proof may look."""
        return self.anonymous if self.anonymous is not None else not self.knows_callers
