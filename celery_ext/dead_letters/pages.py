"""Dead letters: their queues, why each was buried, and the way back or out."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import partial
from itertools import islice
from math import inf
from typing import NamedTuple, Self

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from celery_ext.dead_letters import letters as letters_of
from celery_ext.dead_letters import served
from celery_ext.dead_letters.choice import Choice
from celery_ext.dead_letters.letters import LEAST_RATE, DeadLetter, rate_of
from celery_ext.dead_letters.store import LetterStore, buried_ms
from celery_ext.delays import durations
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.page.figures import Fault, Summary, number
from celery_ext.serve.page.rendering import BOUND, PageNote, View, form_of, notes_of, render
from celery_ext.serve.problems import bad_request
from celery_ext.serve.routes import ActionRoute, change_route
from celery_ext.serve.service import serve_of
from kombu_delayq.message import in_utc, moment_of
from kombu_delayq.store import DelayStore

#: Where the pages are, and their entry of the menu.
FOLDER, MENU = "dead-letters", ("dead-letters", "Dead letters")
#: All is not well while the latest dead letter is younger than this, in ms. A user who leaves older ones has seen them.
RECENT_MS = 86_400_000
#: Letters of a page; groups of letters by their error, and from how many letters they are made.
ROWS, GROUPS, GROUPED = 50, 8, 5000
#: From where on errors of one kind differ: at the first word with a digit, such as an id, a port or an address.
_OWN = re.compile(r"\S*\d")
#: What the page says after a change.
_CHANGED = {
    "replayed": PageNote("ok", "{} sent back to their queues."),
    "dropped": PageNote("ok", "{} dropped: they will never run."),
    "unroutable": PageNote("warn", "{} stay: nobody knows from which queue they came."),
    "none": PageNote("warn", "Nothing changed: these letters are no longer here."),
}


@dataclass(frozen=True)
class LetterFilter:
    """What letters have to meet to be shown, as it was written.

    Attributes:
        task: Name of a task, or a pattern.
        error: Text in the error.
        older: Duration: buried longer ago.
        newer: Duration: buried at most so long ago.
    """

    task: str = ""
    error: str = ""
    older: str = ""
    newer: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Returns the filter in an address or a form."""
        return cls(*(given.get(field.name, "").strip() for field in fields(cls)))

    @property
    def query(self) -> dict[str, str]:
        """The parts that are given, by name."""
        return {name: value for name, value in asdict(self).items() if value}

    def choice(self, *, hidden: bool, until: datetime | None = None) -> Choice:
        """Returns the choice of letters, with ``until`` the same as at that time.

        Raises:
            ValueError: A duration is none, or errors are hidden, which may name arguments.
        """
        if self.error and hidden:
            raise ValueError("arguments are hidden on this server, and so are errors, which may name them")
        older, newer = (durations.parse(text) if text else None for text in (self.older, self.newer))
        return Choice(None, (self.task,) if self.task else (), self.error or None, older, newer, until)


class Group(NamedTuple):
    """Letters of one task with errors of one kind.

    Attributes:
        task: Name of the task; empty for messages that are none.
        error: What their errors have in common.
        letters: How many letters these are.
        latest: When the latest of them was buried; None if no letter says so.
    """

    task: str
    error: str
    letters: int
    latest: datetime | None


def groups_of(letters: Iterable[DeadLetter]) -> list[Group]:
    """Returns the largest groups of letters, the largest first."""
    counts, latest = Counter[tuple[str, str]](), dict[tuple[str, str], datetime]()
    for letter in letters:
        line = (letter.error or "").strip().partition("\n")[0][:200]
        kind = letter.name or "", _OWN.split(line, 1)[0].strip() or line
        counts[kind] += 1
        if letter.at is not None:
            latest[kind] = max(latest.get(kind, letter.at), letter.at)
    return [Group(*kind, count, latest.get(kind)) for kind, count in counts.most_common(GROUPS)]


def queues(request: Request) -> Response:
    """Answers with the queues of dead letters, or with the letters of the queue that the query names."""
    if request.query_params.get("name"):
        return letters(request)
    serve, page = serve_of(request), View(request, FOLDER)
    page.now_ms = serve.store.now_ms()
    found = served.letter_queues(serve.store, serve.settings.dead_letters)
    shown = [(name, found[name]) for name in caller_of(request).queues_of(found)]
    return render("letter_queues.html", page, queues=shown)


def letters(request: Request) -> Response:
    """Answers with the dead letters of a queue."""
    return _page(request, request.path_params.get("queue") or request.query_params["name"], _notes(request))


def _page(request: Request, queue: str, notes: list[PageNote], status: int = 200) -> Response:
    serve, caller, page = serve_of(request), caller_of(request), View(request, FOLDER, notes)
    caller.check(Action.READ, queue=queue)
    served.check_letter_queue(serve.store, queue, serve.settings.dead_letters)
    page.now_ms, count = serve.store.now_ms(), letters_of.count(serve.store, queue)
    cursor, hidden = served.letter_cursor(request.query_params.get("cursor")), serve.settings.hide_arguments
    wanted = LetterFilter.of(dict(form_of(request)) if request.method == "POST" else request.query_params)
    try:
        choice = wanted.choice(hidden=hidden)
    except ValueError as error:
        notes.append(PageNote("bad", f"The filter does not work: {error}."))
        wanted, choice = LetterFilter(), Choice()

    def is_shown(letter: DeadLetter) -> bool:
        return choice(letter) and caller.may(Action.READ, task=letter.name or "")

    found, after = letters_of.page_from(serve.store, queue, cursor, ROWS, is_shown)
    more = page.named(FOLDER, queue, cursor=str(after), **wanted.query) if after is not None else ""
    every = islice(filter(is_shown, letters_of.browse(serve.store, queue)), GROUPED)
    matching = sum(map(is_shown, letters_of.browse(serve.store, queue))) if choice.narrow else count
    return render(
        "letters.html",
        page,
        status,
        queue=queue,
        count=count,
        matching=matching,
        filter=wanted,
        rate=request.query_params.get("rate", ""),
        least_rate=LEAST_RATE,
        hidden=hidden,
        groups=[] if hidden or cursor else groups_of(every),
        grouped=GROUPED,
        letters=found,
        more=more,
        bound=BOUND,
    )


def change(action: Action, request: Request) -> Response:
    """Sends dead letters back to their queues, or removes them."""
    serve, caller, given = serve_of(request), caller_of(request), form_of(request)
    form, ids = dict(given), {value for name, value in given if name == "id"}
    queue, wanted = form.get("queue", ""), LetterFilter.of(form)
    caller.check(action, queue=queue)
    served.check_letter_queue(serve.store, queue, serve.settings.dead_letters)
    every, begun_at = "all" in form, serve.store.now_ms()
    try:
        rate = rate_of(pace) if (pace := form.get("rate", "").strip()) else None
        until = in_utc(datetime.fromisoformat(form["until"])) if form.get("until") else None
        choice = wanted.choice(hidden=serve.settings.hide_arguments, until=until) if every else Choice(ids)
    except ValueError as error:
        raise bad_request(str(error), "bad-filter") from None
    if every and until is None:
        chosen = filter(choice, letters_of.browse(serve.store, queue))
        count = sum(1 for _ in chosen) if choice.narrow else letters_of.count(serve.store, queue)
        if wrong := _unconfirmed(form, count):
            return _page(request, queue, [PageNote("bad", wrong)], 422)
    elif not every and not ids:
        return _page(request, queue, [PageNote("warn", "Nothing changed: no letter is ticked.")], 422)

    act = partial(served.replay, rate=rate) if action is Action.REPLAY else served.drop
    done = act(serve, caller, queue, choice)
    query = {word: str(count) for word, count in done.counts.items()} or {"none": "1"}
    if done.more:
        query |= {"more": "1", "rate": f"{rate:g}", "until": (until or moment_of(begun_at)).isoformat(), **wanted.query}
    return RedirectResponse(View(request).named(FOLDER, queue, **query), 303)


def _unconfirmed(form: Mapping[str, str], count: int) -> str:
    """Returns why all letters are not touched yet; empty if the number that was typed is theirs."""
    typed = form.get("confirm", "").strip().replace(",", "")
    if typed == str(count):
        return ""
    return f"Nothing changed: there are {number(count)} letters now. Type this number to go on."


def _notes(request: Request) -> list[PageNote]:
    notes = notes_of(request.query_params, {}, _CHANGED)
    if request.query_params.get("more"):
        notes.append(PageNote("warn", "Others wait for their turn: replay again to go on."))
    return notes


def summary(store: DelayStore, queues: Iterable[str], now_ms: float) -> Summary:
    """Returns what the overview says of the letters in some queues.

    Args:
        store: The broker's store.
        queues: Names of queues of dead letters.
        now_ms: Redis's clock, ms since the epoch.
    """
    return summary_of(*letters_in(store, queues), now_ms)


def of_queue(store: DelayStore, queue: str) -> str:
    """Returns the text of the link from the page of a queue; empty if it is none of dead letters."""
    return "Dead letters" if queue in (store.if_allowed(store.queues.of_letters) or ()) else ""


def summary_of(letters: Mapping[str, int], latest_ms: float, now_ms: float) -> Summary:
    """Returns the summary of letters, by queue, of which the latest came at a time."""
    faults = tuple(_faults(letters)) if now_ms - latest_ms < RECENT_MS else ()
    return Summary("Dead letters", FOLDER, sum(letters.values()), faults)


def letters_in(store: DelayStore, queues: Iterable[str]) -> tuple[dict[str, int], float]:
    """Returns how many dead letters some queues hold, none of those that cannot be read, and when the latest came.

    The time is in ms since the epoch; ``inf`` where a letter does not say it, or Redis refuses to show the letter; and
    0 without any letter.
    """
    found: dict[str, int] = {}
    latest = 0.0
    for queue in queues:
        with suppress(*store.pool.partial_errors):
            lists = store.part(LetterStore).lists(queue)
            found[queue] = sum(lists.values())
            latest = max(latest, *(_latest_ms(store, key, count) for key, count in lists.items()))
    return found, latest


def _latest_ms(store: DelayStore, key: str, count: int) -> float:
    try:
        letters = store.part(LetterStore).page(key, count - 1, 1) if count else []
    except store.pool.partial_errors:
        return inf
    times = [inf if (at_ms := buried_ms(letter)) is None else at_ms for letter in letters]
    return max(times, default=0.0)


def _faults(letters: Mapping[str, int]) -> Iterator[Fault]:
    held = {queue: count for queue, count in letters.items() if count}
    if count := sum(held.values()):
        letter = "dead letter waits" if count == 1 else "dead letters wait"
        where = f"“{next(iter(held))}”" if len(held) == 1 else f"{len(held)} queues"
        text = f"{number(count)} {letter} in {where}: tasks that failed for good, to be replayed or dropped."
        yield Fault(False, "Tasks have failed for good", text, tuple(held), folder=FOLDER)


ROUTES = [
    ActionRoute(f"/{FOLDER}", queues, Action.READ),
    ActionRoute(f"/{FOLDER}/{{queue:name}}", letters, Action.READ),
    change_route("/do/replay", partial(change, Action.REPLAY), Action.REPLAY),
    change_route("/do/drop", partial(change, Action.DROP), Action.DROP),
]
