"""Shows and changes dead letters for a caller of a server: within its rights, and with a line in the audit."""

from collections import Counter
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from celery_ext.dead_letters import letters as letters_of
from celery_ext.dead_letters import routes
from celery_ext.dead_letters.choice import Choice
from celery_ext.dead_letters.letters import Cursor, DeadLetter, LetterAction
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.service import Serve
from kombu_delayq.audit import ids_named
from kombu_delayq.store import DelayStore


def check_letter_queue(store: DelayStore, queue: str, more: tuple[str, ...] = ()) -> None:
    """Raises a problem, 404, for a queue that is none of dead letters: its messages are tasks that workers run."""
    if queue not in {*letters_of.queues(store), *more}:
        raise Problem(404, f"no dead letters were put into {queue!r}: it is no queue of dead letters", "unknown-queue")


def letter_queues(store: DelayStore, more: tuple[str, ...] = ()) -> dict[str, int]:
    """Returns the queues of dead letters with their lengths: those that Redis knows, and ``more``."""
    names = sorted({*store.queues.of_letters(), *more})
    return {name: letters_of.count(store, name) for name in names}


def letter_cursor(given: str | None) -> Cursor | None:
    """Returns where a page of dead letters begins; None for the first. Raises a problem, 400, for what is no cursor."""
    try:
        return Cursor.parse(given) if given else None
    except ValueError as error:
        raise bad_request(str(error), "bad-cursor") from None


class LettersChanged(NamedTuple):
    """What became of dead letters.

    Attributes:
        counts: How many were ``replayed`` or ``dropped``; and how many stay as ``unroutable``, for nobody knows their
            queue.
        met: Ids of those that the caller may change.
        more: Whether it has ended before all of them had left.
    """

    counts: Counter[str]
    met: set[str]
    more: bool = False


#: A call that replays at a pace ends after so long, in s. A caller that stops a replay waits for that end; so does a
#: proxy.
PACED_S = 5.0


def replay(serve: Serve, caller: Caller, queue: str, choice: Choice, rate: float | None = None) -> LettersChanged:
    """Sends dead letters back to the queues from which they came, within the rights of a caller.

    Letters that are buried meanwhile stay. Others wait until this round through the queue is over.

    Args:
        serve: The server.
        caller: Who does it. A letter whose queue is none of its queues stays.
        queue: A queue of dead letters.
        choice: Which letters.
        rate: Most letters a second, ``LEAST_RATE`` or more; then it ends after ``PACED_S``. None for no limit.
    """

    def may_return(letter: DeadLetter) -> bool:
        """Whether the caller may act on the queue from which a letter came."""
        to = letter.routing_key if not letter.exchange else None
        return "*" in caller.queues or (to is not None and caller.may(Action.REPLAY, queue=to))

    with serve.broker.channel() as channel:
        send = routes.sending(channel, serve.broker.app)
        return _change_letters(serve, caller, Action.REPLAY, queue, choice, send, may_return, rate)


def drop(serve: Serve, caller: Caller, queue: str, choice: Choice) -> LettersChanged:
    """Removes dead letters, within the rights of a caller. The arguments are those of ``replay``."""
    return _change_letters(serve, caller, Action.DROP, queue, choice, letters_of.away, lambda letter: True)


def _change_letters(
    serve: Serve,
    caller: Caller,
    action: Action,
    queue: str,
    choice: Choice,
    act: LetterAction,
    may_go: Callable[[DeadLetter], bool],
    rate: float | None = None,
) -> LettersChanged:
    met, lasts_s = set[str](), inf if rate is None else PACED_S

    def is_chosen(letter: DeadLetter) -> bool:
        chosen = choice(letter) and caller.may(action, task=letter.name or "") and may_go(letter)
        if chosen:
            met.add(letter.id)
        return chosen

    what = ids_named(sorted(choice.ids)) if choice.ids else {"all": not choice.narrow}
    counts, more = letters_of.change(
        serve.store, queue, is_chosen, act, str(action), what, who=caller.name, rate=rate, lasts_s=lasts_s
    )
    return LettersChanged(counts, met, more)
