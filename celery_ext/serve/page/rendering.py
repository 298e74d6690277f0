"""Renders pages: templates, links, notes, and the forms that come back."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import anyio.from_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from celery_ext.features import folders_of, modules_of
from celery_ext.serve.access.gate import Proof
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.page.chart import small_bars
from celery_ext.serve.page.figures import Moment, lasting, moment, number, quantile, size
from celery_ext.serve.problems import bad_request
from celery_ext.serve.service import Serve, serve_of
from kombu_delayq import __version__
from kombu_delayq.message import ms_of

#: A name that may stand in a path: no slash, which some servers decode, and no dots alone, which browsers take away.
_IN_PATH = re.compile(r"(?!\.{1,2}\Z)[^/\\\x00-\x1f]+", re.ASCII)


def _query(query: Mapping[str, str]) -> str:
    given = {name: value for name, value in query.items() if value}
    return f"?{urlencode(given, errors='surrogateescape')}" if given else ""


#: Most fields of a form.
MOST_FIELDS = 1000


def form_of(request: Request) -> list[tuple[str, str]]:
    """Returns the names and values of a form; for handlers that run in a thread.

    Raises:
        Problem: 400, the body is no form.
    """
    body: bytes = anyio.from_thread.run(request.body)
    try:
        return parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError:
        raise bad_request("the form cannot be read") from None


#: Cookie in which the page's script keeps ``light`` or ``dark``.
THEME = "delayq-theme"
#: Values of at most this many characters of JSON are shown unfolded.
SMALL = 1500
#: To change more tasks or letters at once than this, their number has to be typed.
BOUND = 100
READ_ONLY = "This server is read-only. It changes tasks if it is started with --allow-write."


class PageNote(NamedTuple):
    """A sentence at the head of a page.

    Attributes:
        kind: ``ok``, ``warn`` or ``bad``.
        text: The sentence.
    """

    kind: str
    text: str


def notes_of(
    query: Mapping[str, str], done: Mapping[str, PageNote], counted: Mapping[str, PageNote] | None = None
) -> list[PageNote]:
    """Returns what a page says after a change, of which the address tells that led to it.

    Args:
        query: The query of the address.
        done: What ``done=WORD`` says, by the word.
        counted: What ``WORD=NUMBER`` says, by the word; its text has a place for the number.
    """
    word, notes = query.get("done", ""), list[PageNote]()
    if word in done:
        notes.append(done[word])
    for name, note in (counted or {}).items():
        if (given := query.get(name, "")).isdecimal() and len(given) < 12:
            notes.append(note._replace(text=note.text.format(number(int(given)))))
    return notes


@dataclass
class View:
    """What a template knows of the request that it answers, and the links from its page.

    Attributes:
        request: The request.
        at: Which entry of the menu is the current one.
        notes: Sentences at its head.
        now_ms: Redis's clock, ms since the epoch; 0 if the page has no times.
    """

    request: Request
    at: str = ""
    notes: list[PageNote] = field(default_factory=list)
    now_ms: float = 0.0

    @cached_property
    def base(self) -> str:
        """The way from this page to the overview."""
        return "../" * max(path_of(self.request).count("/") - 1, 0) or "./"

    def to(self, path: str, **query: str) -> str:
        """Returns the link to a path below the mount."""
        return f"{self.base}{path}{_query(query)}"

    def queue(self, name: str, **query: str) -> str:
        """Returns the link to a queue."""
        return self.named("queues", name, **query)

    def task(self, task_id: str, **query: str) -> str:
        """Returns the link to a task."""
        return self._named("tasks", "id", task_id, query)

    def named(self, folder: str, name: str, **query: str) -> str:
        """Returns the link to the page of a name in a folder."""
        return self._named(folder, "name", name, query)

    @property
    def menu(self) -> Iterator[tuple[str, str]]:
        """Path and text of each entry of the menu, behind the overview."""
        yield from (("waiting", "Tasks"), ("running", "Running"))
        yield from (module.MENU for module in modules_of("pages"))
        yield "periodic", "Periodic"

    def _named(self, folder: str, by: str, name: str, query: Mapping[str, str]) -> str:
        if self.by_name(name):
            return f"{self.base}{folder}{_query({by: name, **query})}"
        return f"{self.base}{folder}/{quote(name, safe='', errors='surrogateescape')}{_query(query)}"

    def by_name(self, name: str) -> bool:
        """Whether the query of a page names its queue or task, because no path can."""
        return not _IN_PATH.fullmatch(name)

    def moment(self, at_ms: float | None) -> Moment | None:
        """Returns a time, ms since the epoch, as the page shows it."""
        return moment(at_ms, self.now_ms)

    @property
    def serve(self) -> Serve:
        """The server."""
        return serve_of(self.request)

    @property
    def caller(self) -> Caller | None:
        """The name of the caller; None if nobody knows."""
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


def path_of(request: Request) -> str:
    """Returns the path of a request below the mount, as the browser asked for it."""
    path = str(request.scope["path"])
    root = str(request.scope.get("root_path", ""))
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


def render(template: str, page: View, status: int = 200, **context: Any) -> HTMLResponse:
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


def _length(value: Any) -> str:
    return str(len(value)) if isinstance(value, (Mapping, list, tuple)) else ""


def _is_small(value: Any) -> bool:
    """Whether a value is short enough to be shown unfolded."""
    return len(_json(value)) <= SMALL


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


_environment = Environment(
    loader=FileSystemLoader([Path(__file__).parent / "templates", *folders_of("templates")]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.globals["version"] = __version__
_environment.filters.update(
    number=number, bytes=size, lasting=lasting, quantile=quantile, ms=ms_of, small_bars=small_bars
)
_environment.filters.update(json=_json, size=_length, pyrepr=repr, is_small=_is_small)
