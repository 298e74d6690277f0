"""The store's operations on messages that wait: found by their ids or by their due times."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha1
from heapq import merge
from itertools import compress, islice
from math import ceil, inf, isfinite
from typing import Any

from kombu.log import get_logger
from redis.exceptions import NoPermissionError, ResponseError

from kombu_delayq.connection.text import as_bytes, as_text, readable
from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.store.client import Call, Caller, in_each_form
from kombu_delayq.store.types import Change, Page, QueueForm, Waiting

logger = get_logger(__name__)

#: Most messages beside the first of an id that one call finds.
MAX_TWINS = 100
#: About the most bytes that one call looks up, which bounds how long Redis is busy with it.
MAX_BYTES = 300_000
#: Most messages of other clients that one call makes findable.
INDEX_COUNT = 100


class WaitingMessages(Caller):
    """Looks up, cancels and moves single messages. All calls are short: give ids a few hundred at a time."""

    def get(self, queues: Sequence[str], ids: Sequence[str]) -> dict[str, list[Waiting]]:
        """Reads the waiting messages of some ids; one round trip.

        Args:
            queues: Where to look.
            ids: Task ids, or ids under which messages are stored.

        Returns:
            By id, for those that wait, their messages, the next due first; several when two tasks have one id.
        """
        return self._of_ids("get", queues, ids, {})

    def cancel(
        self, queues: Sequence[str], ids: Sequence[str], found: dict[str, list[Waiting]] | None = None
    ) -> dict[str, list[Waiting]]:
        """Removes the waiting messages of some ids; one round trip. The result is as of ``get``.

        What is returned will never be delivered. What is not returned did not wait. Of ids with messages, none of which
        is a step of a delay chain, it takes ``refuse`` back.

        Args:
            queues: Where to look.
            ids: As of ``get``.
            found: Where to put the result, part by part, so that a caller has what came before an error.
        """
        return self._of_ids("cancel", queues, ids, {} if found is None else found)

    def reschedule(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Changes when messages of one queue are due.

        Returns:
            For each: ``rescheduled``, or with nothing changed ``not_delayed``, ``changed`` (another body waits under
            the id by now) or ``due`` (the new due time is past by Redis's clock).
        """

        def call(backup: str, part: Sequence[Change]) -> Call:
            args: list[Any] = [self._wake(queue, backup), queue]
            for message, due_ms, body in part:
                args += [as_bytes(message.id), _sha(message.body), repr(due_ms), body]
            return self._stored(queue, backup), args, backup

        return self._change("reschedule", changes, call)

    def run_now(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Pushes messages of one queue to its lists before they are due; the changes' due times are not read.

        Returns:
            For each: ``transferred``, or with nothing changed ``not_delayed`` or ``changed``, as of ``reschedule``.
        """

        def call(backup: str, part: Sequence[Change]) -> Call:
            args: list[Any] = [*self._list_of_priority]
            for message, _, body in part:
                args += [as_bytes(message.id), _sha(message.body), body]
            return [*self._stored(queue, backup), *self.ready(queue)], args, backup

        return self._change("run_now", changes, call)

    @in_each_form
    def browse(
        self,
        queue: str,
        after: Page | None = None,
        from_ms: float = -inf,
        to_ms: float = inf,
        count: int = 100,
    ) -> Page:
        """Reads a page of a queue's waiting messages, in the order of their due times; one round trip.

        Of messages with one due time, those in the store's own form of backup come first.

        Args:
            queue: Its name.
            after: The page before; None for the first.
            from_ms: Least due time, ms since the epoch.
            to_ms: Due time before which messages are wanted, ms since the epoch.
            count: Most messages to return; fewer come when they are large.
        """
        ends = {self.backup: after.last, self.other_backup: after.other} if after is not None else {}
        # What a conversion has moved to the other form meanwhile is not to be read there again.
        moved = {_as_moved(each, *self._forms) for each in after.messages} if after is not None else set()
        from_ms = max([from_ms, *(float(due) for _, due in ends.values() if due)])
        bounds = (repr(from_ms), repr(to_ms))
        calls: list[Call] = [
            (self._stored(queue, form), [*bounds, *ends.get(form, (b"", b"")), "", "", count, MAX_BYTES, "1"], form)
            for form in self._forms
        ]
        rows, more = {}, {}
        for form, reply in zip(self._forms, self._run_each("scan", calls)[0], strict=True):
            if isinstance(reply, Exception):
                raise reply
            more[form], rows[form] = as_text(reply[0]) == "more", list(_rows(reply[1], 5))
        read = list(_next_due(rows, more, count))
        found = [_waiting(queue, form, row[:4]) for form, row in read]
        messages = [each for each in found if (_whole_ms(each.due_ms), each.body, each.backup) not in moved]
        ends |= {form: (as_bytes(row[4]), as_bytes(row[1])) for form, row in read}
        is_more = any(more.values()) or len(read) < sum(map(len, rows.values()))
        nowhere = (b"", b"")
        last, other = ends.get(self.backup, nowhere), ends.get(self.other_backup, nowhere)
        return Page(messages, last, is_more, self.backup, other)

    def index(self, queue: str) -> int:
        """Makes messages of Redisson's form that other clients have offered findable by their ids. Returns how many."""
        found: int = 0
        after: list[Any] = ["", "", ""]
        while True:
            args = [*after, INDEX_COUNT, MAX_BYTES]
            word, added, *after = self._run("index", self._stored(queue, "list"), args, "list")
            found += int(added)
            if as_text(word) == "end":
                return found

    @in_each_form
    def count(self, queue: str, from_ms: float = -inf, to_ms: float = inf) -> int:
        """Counts the messages of a queue that are due from ``from_ms`` on and before ``to_ms``."""
        return sum(self.send([("ZCOUNT", self._due(queue, form), from_ms, f"({to_ms!r}") for form in self._forms]))

    def _change(
        self, operation: str, changes: Sequence[Change], call: Callable[[str, Sequence[Change]], Call]
    ) -> list[str]:
        """Runs a script for changes of one queue, once for each form of backup in which the messages are."""
        words = [""] * len(changes)
        for backup in dict.fromkeys(each.message.backup for each in changes):
            places = [at for at, each in enumerate(changes) if each.message.backup == backup]
            replies = self._run(operation, *call(backup, [changes[at] for at in places]))
            for at, word in zip(places, replies, strict=True):
                words[at] = as_text(word)
        return words

    def _of_ids(
        self, operation: str, queues: Sequence[str], ids: Sequence[str], found: dict[str, list[Waiting]]
    ) -> dict[str, list[Waiting]]:
        forms = [QueueForm(queue, self.backup) for queue in queues] if ids else []
        others = self._search(operation, forms, ids, found)
        self._search(operation, others, ids, found)
        missing = [each for each in ids if each not in found]
        # A conversion may have moved messages out of the other form between these two.
        self._search(operation, [QueueForm(form.queue, self.backup) for form in others if missing], missing, found)
        missing = [each for each in missing if each not in found]
        grown = [form for form in (*forms, *others) if missing and form.backup == "list" and self._index(form.queue)]
        self._search(operation, grown, missing, found)
        for messages in found.values():
            messages.sort(key=lambda message: message.due_ms)
        return found

    def _search(
        self, operation: str, forms: Sequence[QueueForm], ids: Sequence[str], found: dict[str, list[Waiting]]
    ) -> list[QueueForm]:
        """Searches queues for ids, and adds what it finds. Returns where there are messages in the other form too.

        A queue that cannot be searched is logged and left: it must not hide what was found, or removed, in others.

        Raises:
            redis.exceptions.ResponseError: None of the queues can be searched, and nothing has been found.
        """
        others = [QueueForm(form.queue, each) for form in forms for each in self._forms[1:] if form.backup != each]
        there: list[QueueForm] = []
        done = dict.fromkeys(forms, 0)  # for how many of the ids each was searched
        while done:
            calls = [self._search_call(operation, form, ids[count:]) for form, count in done.items()]
            # Before and after: a conversion may move the last message there, or the first one away, in between.
            replies, counts = self._run_each(operation, calls, [("ZCARD", self._due(*other)) for other in others])
            there += compress(others, (any(map(self._is_there, both)) for both in counts))
            others = []
            self._check(dict(zip(done, replies, strict=True)), -1 if found else len(forms))
            for form, reply in zip(list(done), replies, strict=True):
                if isinstance(reply, ResponseError):
                    done[form] = len(ids)
                    continue
                for identity, parts in zip(ids[done[form] :], reply, strict=False):
                    if parts:
                        found.setdefault(identity, []).extend(_waiting(*form, row) for row in _rows(parts))
                done[form] += len(reply)
            done = {form: count for form, count in done.items() if count < len(ids)}
        return there

    def _search_call(self, operation: str, form: QueueForm, ids: Sequence[str]) -> Call:
        keys, args = self._stored(*form), [MAX_TWINS, MAX_BYTES, *map(as_bytes, ids)]
        if operation == "cancel":
            keys += [self.keys.cancelled, self.keys.chains]
            args.insert(2, CHAIN_ID)
        return keys, args, form.backup

    def _is_there(self, reply: Any) -> bool:
        """Reads a reply on the number of messages in the other form; what Redis cannot tell, a search will report."""
        if isinstance(reply, NoPermissionError):
            self._look_no_further(reply)
            return False
        return bool(reply)

    def _check(self, replies: dict[QueueForm, Any], most: int) -> None:
        """Logs which queues cannot be searched; raises what Redis says when these are ``most``."""
        failed = {form: reply for form, reply in replies.items() if isinstance(reply, Exception)}
        if len(failed) == most:
            raise next(iter(failed.values()))
        for form, error in failed.items():
            logger.error("queue %r cannot be searched for delayed messages: %s", form.queue, readable(error))

    def _index(self, queue: str) -> int:
        try:
            return self.index(queue)
        except ResponseError as error:
            logger.error("queue %r cannot be searched for messages of other clients: %s", queue, readable(error))
            return 0


def _rows(parts: Sequence[Any], width: int = 4) -> Iterator[tuple[Any, ...]]:
    return zip(*(iter(parts),) * width, strict=True)


def _next_due(
    rows: Mapping[str, Sequence[tuple[Any, ...]]], more: Mapping[str, bool], count: int
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yields rows of several forms with their form, the next due first, up to where that is known."""
    left = {form: len(found) for form, found in rows.items()}
    each = ([(form, row) for row in found] for form, found in rows.items())
    for form, row in islice(merge(*each, key=lambda pair: float(pair[1][1])), count):
        yield form, row
        left[form] -= 1
        if more[form] and not left[form]:
            return


def _as_moved(message: Waiting, *forms: str) -> tuple[float, bytes | None, str]:
    """Returns due time, body and form of a message after a conversion, which rounds due times to whole ms."""
    return _whole_ms(message.due_ms), message.body, next((each for each in forms if each != message.backup), "")


def _whole_ms(due_ms: float) -> float:
    return ceil(due_ms) if isfinite(due_ms) else due_ms


def _waiting(queue: str, backup: str, row: Iterable[Any]) -> Waiting:
    identity, due, priority, body = row
    return Waiting(
        queue, as_text(identity), float(due), int(priority or 0), as_bytes(body) if priority else None, backup
    )


def _sha(body: bytes | None) -> str:
    return sha1(body or b"", usedforsecurity=False).hexdigest()
