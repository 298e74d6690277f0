"""Pages from templates: what each of them knows of the request, and how values are written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from celery_ext.serve.access.gate import Proof
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.page import figures
from celery_ext.serve.page.links import Links, is_in_path
from celery_ext.serve.service import Serve, serve_of
from kombu_delayq import __version__

#: Cookie in which the page's script keeps ``light`` or ``dark``.
THEME = "delayq-theme"
#: Values of at most this many characters of JSON are shown unfolded.
SMALL = 1500
#: To change more tasks or letters at once than this, their number has to be typed.
BOUND = 100
READ_ONLY = "This server is read-only. It changes tasks if it is started with --allow-write."


class Note(NamedTuple):
    """A sentence at the head of a page.

    Attributes:
        kind: ``ok``, ``warn`` or ``bad``.
        text: The sentence.
    """

    kind: str
    text: str


@dataclass
class Page:
    """What a template knows of the request that it answers.

    Attributes:
        request: The request.
        at: Which entry of the menu is the current one.
        notes: Sentences at its head.
        now_ms: Redis's clock, ms since the epoch; 0 if the page has no times.
    """

    request: Request
    at: str = ""
    notes: list[Note] = field(default_factory=list)
    now_ms: float = 0.0
    version: str = __version__

    @cached_property
    def links(self) -> Links:
        """Makes links from this page."""
        return Links(path_of(self.request))

    @property
    def base(self) -> str:
        """The way from this page to the overview."""
        return self.links.base

    @property
    def serve(self) -> Serve:
        """The server."""
        return serve_of(self.request)

    @property
    def caller(self) -> Caller | None:
        """Who sent the request; None if nobody knows."""
        return getattr(self.request.state, "caller", None)

    @property
    def who(self) -> str:
        """Name of the caller."""
        return self.caller.name if self.caller else ""

    @property
    def theme(self) -> str:
        """``light`` or ``dark`` if the reader chose one."""
        chosen = self.request.cookies.get(THEME, "")
        return chosen if chosen in ("light", "dark") else ""

    @property
    def read_only(self) -> str:
        """Why nothing can be changed here; empty if something can."""
        return "" if self.serve.settings.allow_write else READ_ONLY

    @property
    def can_leave(self) -> bool:
        """Whether the caller has logged in, and so may log out."""
        visit = getattr(self.request.state, "visit", None)
        return visit is not None and visit.proof is Proof.SESSION

    def refused(self, action: str, queue: str | None = None, task: str | None = None) -> str:
        """Returns why the caller may not do something; empty if it may."""
        if self.read_only:
            return self.read_only
        if self.caller is None or not self.caller.may(Action(action), queue=queue, task=task):
            return f"{self.who or 'You'} may not {action} here."
        return ""

    queue = property(lambda self: self.links.queue)
    task = property(lambda self: self.links.task)
    letters = property(lambda self: self.links.letters)

    def by_name(self, name: str) -> bool:
        """Whether a form has to name its queue, because the path does not."""
        return not is_in_path(name)


def path_of(request: Request) -> str:
    """Returns the path of a request below the mount, as the browser asked for it."""
    path = str(request.scope["path"])
    root = str(request.scope.get("root_path", ""))
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


def render(template: str, page: Page, status: int = 200, **context: Any) -> HTMLResponse:
    """Returns a page.

    Args:
        template: File name of the template.
        page: What it knows of the request.
        status: HTTP status.
        context: What else the template needs.
    """
    html = _environment.get_template(template).render(page=page, **context)
    # A name may have bytes that are not UTF-8.
    return HTMLResponse(html.encode(errors="backslashreplace"), status, {"Cache-Control": "no-store"})


def _size(value: Any) -> str:
    return str(len(value)) if isinstance(value, (Mapping, list, tuple)) else ""


def _is_small(value: Any) -> bool:
    """Whether a value is short enough to be shown unfolded."""
    return len(_json(value)) <= SMALL


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


_environment = Environment(
    loader=PackageLoader("celery_ext.serve.page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {"number": figures.number, "json": _json, "size": _size, "pyrepr": repr, "is_small": _is_small}
