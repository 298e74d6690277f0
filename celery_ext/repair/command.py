"""``delayq repair``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial

import click
from redis.exceptions import NoPermissionError, ResponseError

from celery_ext.cli.broker import CliBroker, broker_in_words
from celery_ext.cli.options import confirm, json_option, queues_argument, yes_option
from celery_ext.cli.output import escaped, json_line, number_of, print_stderr, size
from celery_ext.cli.progress import with_progress
from celery_ext.features import modules_of
from celery_ext.repair.check import Findings, check
from celery_ext.repair.leftovers import Leftovers, find_leftovers
from celery_ext.repair.store import RepairStore
from celery_ext.repair.strays import StraySearch, find_strays, forget_strays
from kombu_delayq.audit import audited
from kombu_delayq.store import DelayStore

SECTION = "Mend"
EXAMPLES = {
    "repair": {
        "delayq repair --dry-run": "Only look",
        "delayq repair orders": "Mend a queue, after a question",
    },
}

#: By kind of damage: the words for one, those for many, and what a repair does about it.
WORDS = {
    "lost": (
        "index entry without a body: this message is lost",
        "index entries without a body: these messages are lost",
        "removed",
    ),
    "unindexed": (
        "body without an index entry, which would never be delivered",
        "bodies without an index entry, which would never be delivered",
        "indexed by the due time that is kept, or by the eta",
    ),
    "undated": ("of these has no eta", "of these have no eta", "due now"),
    "unnamed": ("message that cannot be found by its id", "messages that cannot be found by their ids", "mended"),
    "landed": (
        "message on its way to a consumer that is gone",
        "messages on their way to consumers that are gone",
        "next in the queue",
    ),
    "held": (
        "message in the hands of a consumer that is gone",
        "messages in the hands of consumers that are gone",
        "next in the queue",
    ),
    "unreadable": (
        "body without an index entry that is no message",
        "bodies without an index entry that are no messages",
        "left alone",
    ),
}


#: Modules of features that mend what is theirs: each has the same words, and the functions ``look`` and ``mend``.
_MENDING = partial(modules_of, "mending", but="repair")


@click.command()
@queues_argument()
@click.option("--dry-run", is_flag=True, help="Change nothing. Exit code 1 means that there is something to repair.")
@yes_option
@json_option()
@click.pass_obj
def repair(broker: CliBroker, queues: tuple[str, ...], dry_run: bool, yes: bool, as_json: bool) -> None:
    """Find and mend what a lost or damaged key leaves of messages.

    Run it with --dry-run first. Without QUEUE, it looks at all queues, even those that no transfer worker knows. It
    finds index entries without a body, bodies without an index entry, and messages that cannot be found by their ids.
    And it finds what consumers hold that nobody knows and, where no transfer worker leads, those whose lease has ended.
    Without QUEUE, it also finds replies to remote control that nobody has read for an hour. And it finds places of
    limits by key that consumers have which are gone. It may run while the queues are in use, and run again.

    Exit code 0 means that all is sound by now, 1 that something is left: a body that is no message, a key of another
    type, or with --dry-run whatever was found.
    """
    with broker.store() as (connection, store):
        work = _Repair(store, queues)
        found = work.run(mend=yes and not dry_run)
        left_over = work.look_for_leftovers(mend=yes and not dry_run)
        of_features = work.of_features(mend=yes and not dry_run)
        work.report_unknown(found)
        mendable = left_over or any(of_features.values()) or any(findings.mendable for findings in found)
        ask = mendable and not (dry_run or yes)
        if ask:
            _print_findings(found, queues, left_over, mended=False, as_json=as_json)
            _print_of_features(of_features, mended=False, as_json=as_json)
            confirm(f"Mend this on {broker_in_words(connection)}?", yes=False)
            found = work.run(mend=True, queues=[findings.queue for findings in found])
            left_over = work.look_for_leftovers(mend=True)
            of_features = work.of_features(mend=True)
        _print_findings(found, queues, left_over, mended=not dry_run, as_json=as_json)
        _print_of_features(of_features, mended=not dry_run, as_json=as_json)
    left = work.failed or (dry_run and mendable) or any(findings.beyond_repair for findings in found)
    raise SystemExit(int(bool(left)))


class _Repair:
    def __init__(self, store: DelayStore, queues: Iterable[str]) -> None:
        self.failed = False
        self._store, self._part = store, store.part(RepairStore)
        self._given = list(dict.fromkeys(queues))
        self._complaints: set[str] = set()

    def run(self, *, mend: bool, queues: Iterable[str] | None = None) -> list[Findings]:
        """Checks the queues, by default all or those given."""
        known, search = self._known(), self._search()
        # Without a name given, the whole database is searched, also for queues that no transfer worker knows.
        names = queues or self._given or sorted({*known.union(*self._part.queue_pages()), *search.strays})
        found = [Findings(name) for name in names]
        steps = (
            step
            for findings in found
            for step in check(self._store, findings, known, mend=mend, strays=search.strays.get(findings.queue))
        )
        total = sum(map(self._size, names))
        try:
            for _ in with_progress(steps, "mending" if mend else "checking", total, size=int):
                pass
        finally:
            if mend:
                self._note(found)
        if mend and search.ended:
            forget_strays(self._store, search.ended)
        return found

    def look_for_leftovers(self, *, mend: bool) -> Leftovers:
        """Looks for what processes that are gone have left, unless queues are given."""
        found = Leftovers()
        if self._given:
            return found
        steps = find_leftovers(self._store, found, mend=mend)
        with audited("repair", {"of": "processes that are gone"}) as counts:
            try:
                for _ in with_progress(steps, "removing leftovers" if mend else "leftovers", size=int):
                    pass
            except NoPermissionError as error:
                self._complain(f"what processes have left cannot be searched: {error}")
            finally:
                counts.update({"leftovers": found.replies + found.bindings} if mend and found else {})
        return found

    def of_features(self, *, mend: bool) -> dict[str, int]:
        """Counts what features look for, in their modules ``mending``, by kind; with ``mend`` what was mended."""
        found: dict[str, int] = {}
        for module in _MENDING():
            with audited("repair", {"queues": self._given or "all"}) as counts:
                try:
                    of_feature = (module.mend if mend else module.look)(self._store, self._given)
                except ResponseError as error:
                    self._complain(str(error))
                    continue
                found |= of_feature
                counts.update({kind: count for kind, count in of_feature.items() if mend and count})
        return found

    def _note(self, found: Iterable[Findings]) -> None:
        for findings in found:
            mended = {kind: count for kind in WORDS if kind != "unreadable" and (count := getattr(findings, kind))}
            error = {} if findings.error is None else {"error": findings.error}
            with audited("repair", {"queue": findings.queue, **error}, unchanged=("undated",)) as counts:
                counts.update(mended)

    def report_unknown(self, found: list[Findings]) -> None:
        """Names on stderr the given queues that are not known, and removes them from ``found``."""
        known = self._known() if self._given else set()
        for findings in list(found):
            queue = findings.queue
            if queue not in self._given or queue in known:
                continue
            if findings == Findings(queue) and not self._part.is_kept(queue):
                self.failed = True
                found.remove(findings)
                print_stderr(f"queue {queue!r} holds no delayed messages, and is not known")

    def _search(self) -> StraySearch:
        try:
            search = find_strays(self._store)
        except ResponseError as error:
            self._complain(f"what consumers hold cannot be searched: {error}")
            return StraySearch({})
        if search.unread:
            notes = number_of(len(search.unread), "note")
            self._complain(f"{notes} of messages in hand cannot be read, such as {min(search.unread)}")
        return search

    def _complain(self, text: str) -> None:
        self.failed = True
        if text not in self._complaints:  # a repair searches twice
            self._complaints.add(text)
            print_stderr(text)

    def _known(self) -> set[str]:
        try:
            return set(self._store.queues.registered())
        except ResponseError as error:
            self._complain(f"key {self._store.keys.queues}: {error}")
            return set()

    def _size(self, queue: str) -> int:
        try:
            return 2 * self._store.queues.size(queue)
        except (ResponseError, UnicodeEncodeError):  # the check itself will report it
            return 0


def _print_findings(
    found: Sequence[Findings], given: Sequence[str], left_over: Leftovers, *, mended: bool, as_json: bool
) -> None:
    for findings in found:
        if as_json:
            is_mended = mended and findings.mendable and findings.error is None
            click.echo(json_line({**asdict(findings), "mended": is_mended}))
        else:
            click.echo("\n".join(_lines(findings, mended=mended)))
    if left_over:
        queues = number_of(left_over.replies, "queue of replies", "queues of replies")
        names = number_of(left_over.bindings, "set of names", "sets of names")
        text = f"processes that are gone have left {queues} and {names}, {size(left_over.bytes)}"
        as_line = {"leftovers": asdict(left_over), "mended": mended}
        click.echo(json_line(as_line) if as_json else text + ": removed" * mended)
    if not (found or given or left_over) and not as_json:
        click.echo("no queue holds delayed messages")


def _print_of_features(found: Mapping[str, int], *, mended: bool, as_json: bool) -> None:
    words = {kind: shown for module in _MENDING() for kind, shown in module.WORDS.items()}
    if as_json and any(found.values()):
        click.echo(json_line({**found, "mended": mended}))
    for kind, count in {} if as_json else found.items():
        one, many, done = words[kind]
        if count:
            click.echo(number_of(count, one, many) + (f": {done}" if mended else ""))


def _lines(findings: Findings, *, mended: bool) -> Iterator[str]:
    sound = not (findings.mendable or findings.beyond_repair)
    delayed = findings.delayed + (findings.unindexed if mended else 0)
    title = f"queue {escaped(findings.queue)}: {number_of(delayed, 'delayed message')}"
    yield f"{title}, all sound" if sound else title
    if findings.error is not None:
        yield f"  left: {escaped(findings.error)}"
    if findings.unknown:
        yield "  no transfer worker knows of it" + (": now they do" if mended else "")
    for kind, (one, many, done) in WORDS.items():
        count = getattr(findings, kind)
        if not count:
            continue
        ids = findings.examples.get(kind, [])
        more = ", …" if count > len(ids) else ""
        yield f"  {number_of(count, one, many)}" + (f": {done}" if mended else "")
        if ids:
            yield f"    {', '.join(map(escaped, ids))}{more}"


COMMANDS = (repair,)
