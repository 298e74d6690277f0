"""Checks of a broker: its Redis servers, what waits there, and who is there to move it on."""

from collections.abc import Callable, Mapping
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError

from celery_ext import health
from celery_ext.connection import wrong_keys
from celery_ext.delays import in_words
from celery_ext.doctor.finding import Finding, Findings, counted, named
from celery_ext.doctor.servers import Servers
from celery_ext.doctor.subject import Subject
from celery_ext.health import Level
from kombu_delayq.errors import UnsupportedRedis
from kombu_delayq.options import LAYOUTS
from kombu_delayq.store import QueueStats

#: From how many s on a clock is wrong, and so wrong that nothing comes when it should.
CLOCK_OFF_S, CLOCK_WRONG_S = 1.0, 60.0
_SETTINGS = "how-to/outage.md#before-one-settings-of-redis"


def version(subject: Subject) -> Findings:
    """Is Redis recent enough, and a primary?"""
    try:
        subject.the_store.check_version()
    except UnsupportedRedis as error:
        yield Finding(Level.ERROR, str(error), "upgrade Redis", "reference/compatibility.md")
    yield from _each(subject, _role)


def lua(subject: Subject) -> Findings:
    """Does Redis run Lua scripts?"""
    try:
        subject.the_store.client.eval("return 1", 0)
    except NoPermissionError as error:
        yield Finding(
            Level.ERROR, f"the user may run no scripts: {error}", "give it +eval +evalsha", "reference/acl.md"
        )
    except ResponseError as error:
        yield Finding(
            Level.ERROR,
            f"the server runs no Lua scripts, so nothing can be stored or delivered: {error}",
            "load the module for Lua, apart from Valkey 9.1 on; or take EVAL and EVALSHA out of rename-command",
            "reference/compatibility.md",
        )


def _role(name: str, info: Mapping[str, Any]) -> Findings:
    if info.get("role") == "slave":
        yield Finding(
            Level.ERROR,
            f"{name} is a replica, and takes no writes",
            "name the primary in the broker URL, or the Sentinels",
            "how-to/cluster.md#sentinel",
        )


def eviction(subject: Subject) -> Findings:
    """Does Redis keep what it has when its memory is full?"""
    yield from _each(subject, _eviction)


def _eviction(name: str, info: Mapping[str, Any]) -> Findings:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        limited = int(info.get("maxmemory", 0)) > 0
        volatile = policy.startswith("volatile")  # the default of some managed services
        dropped = "queues with x-expires, and notes of bulk jobs," if volatile else "delayed messages and whole queues"
        yield Finding(
            Level.ERROR if limited and not volatile else Level.WARNING,
            f"{name} has maxmemory-policy {policy}: when its memory is full it may drop {dropped} "
            f"without a word{'' if limited else '. So far it has no limit, maxmemory is 0'}",
            "redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
            _SETTINGS,
        )


def persistence(subject: Subject) -> Findings:
    """Does Redis have on disk what it would need after a crash?"""
    saves = subject.the_store.part(Servers).setting("save")

    def look(name: str, info: Mapping[str, Any]) -> Findings:
        yield from _failed_writes(name, info)
        if "aof_enabled" in info and not int(info["aof_enabled"]):
            yield _without_log(name, info, saves[name], restorable=subject.the_store.keeps_all)

    yield from _each(subject, look)


def _failed_writes(name: str, info: Mapping[str, Any]) -> Findings:
    for field, what in (("aof_last_write_status", "append-only file"), ("rdb_last_bgsave_status", "snapshot")):
        if info.get(field, "ok") != "ok":
            yield Finding(
                Level.ERROR,
                f"{name} could not write its {what} the last time: {field} is {info[field]}",
                "look at the log and the disk of Redis",
                _SETTINGS,
            )


def _without_log(name: str, info: Mapping[str, Any], save: str | None, *, restorable: bool) -> Finding:
    """Returns what it means that a server has no append-only file. save: None if it does not tell its setting."""
    if save is None:
        return Finding(
            Level.NOTICE,
            f"{name} has no append-only file, and does not tell how else it keeps its data",
            "look at what its service promises",
            _SETTINGS,
        )
    if save:
        level, what = Level.WARNING, "has snapshots alone: a crash loses what came since the last one"
    else:
        replicas = int(info.get("connected_slaves", 0))
        level = Level.WARNING if replicas else Level.ERROR
        what = (
            f"keeps nothing on disk: a restart loses all that waits{', unless a replica takes over' * bool(replicas)}"
        )
    if restorable:
        level, what = Level.NOTICE, f"{what}. The journal has all delayed messages"
    return Finding(
        level, f"{name} {what}", "redis-cli CONFIG SET appendonly yes, and the same in redis.conf", _SETTINGS
    )


def memory(subject: Subject) -> Findings:
    """Is there room in the memory of Redis?"""
    yield from _each(subject, _memory)


def _memory(name: str, info: Mapping[str, Any]) -> Findings:
    used, limit, total = (int(info.get(key, 0)) for key in ("used_memory", "maxmemory", "total_system_memory"))
    bound = limit or total
    filled = used / bound if bound else 0
    level = health.of_memory(filled)
    if level is not Level.OK:
        of = "maxmemory" if limit else "the machine's memory, and has no maxmemory"
        effect = "it is full: publishing fails" if filled >= 1 else "when it is full, publishing fails"
        yield Finding(
            level,
            f"{name} uses {filled:.0%} of {of}: {effect}",
            "raise maxmemory, or move what is due late to a journal",
            "troubleshooting.md#redis-is-full-or-grows",
        )


def _each(subject: Subject, look: Callable[[str, Mapping[str, Any]], Findings]) -> Findings:
    """Looks at what each server says of itself, by its address."""
    for name, info in subject.infos.items():
        if info:
            yield from look(name, info)
        else:
            yield Finding(
                Level.NOTICE,
                f"not checked: {name} does not let this user ask for INFO",
                "give the user the right +info",
                "reference/acl.md",
            )


def clock(subject: Subject) -> Findings:
    """Do Redis and this process have the same time?"""
    for name, offset in subject.clocks.items():
        off_s = abs(offset.ahead_s)
        if off_s - offset.unsure_s < CLOCK_OFF_S:
            continue
        way = "ahead of" if offset.ahead_s > 0 else "behind"
        by = in_words(off_s, plain=True)
        late = "late" if offset.ahead_s > 0 else "early"
        yield Finding(
            Level.ERROR if off_s >= CLOCK_WRONG_S else Level.WARNING,
            f"the clock of this machine is {by} {way} that of {name}: countdowns from here end {by} too {late}",
            "keep clocks in step, by NTP",
            "how-to/transfer-workers.md#clocks",
        )
    ahead = [offset.ahead_s for offset in subject.clocks.values()]
    if len(ahead) > 1 and max(ahead) - min(ahead) >= CLOCK_OFF_S:
        yield Finding(
            Level.WARNING,
            f"the clocks of the nodes differ by {in_words(max(ahead) - min(ahead), plain=True)}: each queue goes by "
            "the clock of its own node",
            "keep clocks in step, by NTP",
            "how-to/transfer-workers.md#clocks",
        )


def leader(subject: Subject) -> Findings:
    """Does a transfer worker lead, and keep up?"""
    store = subject.the_store
    if store.leases.leader() is None:
        delayed = sum(stats.delayed for stats in subject.overview)
        yield Finding(
            health.of_leader(leads=False, delayed=delayed),
            "no transfer worker runs: nothing that is due will be delivered"
            + (f", and {counted(delayed, 'message waits', 'messages wait')}" if delayed else ""),
            subject.start("a worker with kombu-delayq"),
            "troubleshooting.md#status-shows-no-leader",
        )
        return
    late = {stats.queue: level for stats in subject.overview if (level := _of_overdue(subject, stats)) is not Level.OK}
    if late:
        by = in_words(max(stats.overdue_ms for stats in subject.overview if stats.queue in late) / 1000, plain=True)
        yield Finding(
            max(late.values(), key=[*Level].index),
            f"a transfer worker leads, and messages are overdue by up to {by}: {named([*late])}",
            "look for errors in the log of the leading transfer worker",
            "troubleshooting.md#a-task-is-late",
        )


def _of_overdue(subject: Subject, stats: QueueStats) -> Level:
    is_held = subject.the_store.options.limits_of(stats.queue) is not None
    return health.of_overdue(stats.overdue_ms / 1000 if stats.overdue else 0.0, is_held=is_held)


def consumers(subject: Subject) -> Findings:
    """Does somebody consume each queue that has messages?"""
    store = subject.the_store
    letters = set(store.queues.of_letters())
    consumed = {queue for lease in store.consumers.all() if lease.left_ms > 0 for queue in lease.queues}
    if subject.workers is not None:
        consumed |= {queue for worker in subject.workers for queue in worker.queues}
    consumed |= store.figures.held().keys() | letters
    idle = [stats for stats in subject.overview if (stats.ready or stats.overdue) and stats.queue not in consumed]
    if idle:
        count = sum(stats.ready + stats.overdue for stats in idle)
        yield Finding(
            Level.WARNING,
            f"{counted(count, 'message is', 'messages are')} ready or due, and no consumer is known: "
            f"{named([stats.queue for stats in idle])}",
            "start a worker with --queues that names them. A stock consumer that is no Celery worker is not known here",
            "troubleshooting.md#nothing-is-delivered",
        )


def paused(subject: Subject) -> Findings:
    """Is no queue paused?"""
    if found := subject.the_store.fetching.paused():
        since = in_words((subject.the_store.now_ms() - min(found.values())) / 1000, plain=True)
        yield Finding(
            Level.WARNING,
            f"{counted(len(found), 'queue is', 'queues are')} paused, for {since} or less: {named([*found])}",
            "once they may go on, `delayq queues resume QUEUE`",
            "how-to/queues.md#pause-a-queue",
        )


def unreadable(subject: Subject) -> Findings:
    """Can each queue be read, and what the queues share?"""
    for found in wrong_keys(subject.the_store, subject.app):
        yield Finding(
            Level.ERROR,
            f"workers cannot consume: {found}",
            "look at the key, then rename or delete it",
            "how-to/outage.md#a-key-of-the-wrong-type",
        )
    for stats in subject.overview:
        if stats.error:
            yield Finding(
                Level.ERROR,
                f"queue {stats.queue!r} cannot be read: {stats.error}",
                "mend what the message names; `delayq repair` shows more",
                "how-to/outage.md#a-key-of-the-wrong-type",
            )


def in_hand(subject: Subject) -> Findings:
    """Is each message in hand in the hands of somebody who is known?"""
    counts = subject.the_store.consumers.counts()  # first: a consumer is known before it takes messages
    known = {lease.name for lease in subject.the_store.consumers.all()}
    lost = {name: count for name, count in counts.items() if count and name and name not in known}
    if lost:
        holders = "a consumer" if len(lost) == 1 else "consumers"
        yield Finding(
            Level.WARNING,
            f"{counted(sum(lost.values()), 'message is', 'messages are')} in the hands of {holders} that nobody knows",
            f"`delayq repair` gives {'it' if sum(lost.values()) == 1 else 'them'} back",
            "how-to/doctor.md#repair",
        )


def deaths(subject: Subject) -> Findings:
    """Would the death of each consumer be noticed within seconds?"""
    store = subject.the_store
    seen = {name for names in store.consumers.subscribed().values() for name in names}
    living = {lease.name for lease in store.consumers.all() if lease.left_ms > 0 and not lease.is_http}
    if unseen := sorted(living - seen):
        yield Finding(
            Level.NOTICE,
            f"{counted(len(unseen), 'consumer has', 'consumers have')} not subscribed to a channel of their own: what "
            f"they hold when they are killed goes back only when the lease ends: {named(unseen)}",
            "let their users subscribe to &delayq:*. A consumer that has just started needs half a second",
            "how-to/delivery-guarantees.md#what-happens-when",
        )


def prefixes(subject: Subject) -> Findings:
    """Is all that waits under the key prefix of the app?"""
    store = subject.the_store
    found = store.queues.other_prefixes()
    # Where transfer workers lead under both, two apps share the database. Else the messages may stay where they are.
    leads = bool(found) and store.leases.leader() is not None
    led = {prefix for prefix in found if leads and store.leases.leads_under(prefix)}
    page = "troubleshooting.md#messages-are-under-another-prefix-or-database"
    own = f"its own is {store.keys.prefix!r}" if store.keys.prefix else "it has none itself"
    if left := {prefix: count for prefix, count in found.items() if prefix not in led}:
        yield Finding(
            Level.WARNING,
            f"delayed messages wait under key prefixes that this app does not see, since {own}: {_by_prefix(left)}",
            "give all processes of an app one global_keyprefix. If they are of another app, start its workers",
            page,
        )
    if led:
        yield Finding(
            Level.NOTICE,
            "delayed messages of others wait in the same database, which this app does not see: "
            + _by_prefix({prefix: found[prefix] for prefix in found if prefix in led}),
            "nothing, if they are of another app. Else give all processes one global_keyprefix",
            page,
        )


def _by_prefix(counts: Mapping[str, int]) -> str:
    return named(
        [f"{count:,} {f'with global_keyprefix {name!r}' if name else 'without one'}" for name, count in counts.items()]
    )


def layout(subject: Subject) -> Findings:
    """Is all that waits in the layout of the app?"""
    store = subject.the_store
    [other] = {*LAYOUTS} - {store.layout}
    queues = [stats.queue for stats in subject.overview]
    counts: dict[str, int] = {}
    refused = False
    for queue, reply in zip(queues, store.queues.convertible_each(queues), strict=True):
        if isinstance(reply, NoPermissionError):
            refused = True
        elif isinstance(reply, Exception):
            yield Finding(
                Level.ERROR,
                f"queue {queue!r} cannot be read in the layout {other!r}: {reply}",
                "mend what the error says, and look again",
                "how-to/outage.md#a-key-of-the-wrong-type",
            )
        elif reply:
            counts[queue] = reply
    if counts:
        yield Finding(
            Level.WARNING,
            f"{counted(sum(counts.values()), 'message waits', 'messages wait')} in the layout {other!r}, while the app "
            f"has {store.layout!r}: delivered when due, but neither found nor counted: {named([*counts])}",
            "give all processes one transport option layout. With all of them stopped, run "
            f"`delayq convert QUEUE --to {store.layout}` for each of these queues",
            "troubleshooting.md#two-layouts",
        )
    if refused:
        yield Finding(
            Level.NOTICE,
            f"not checked: the user has no rights for keys of the layout {other!r}. No rights are needed if nobody "
            "uses it",
            "if somebody does, run it as a user with the rights of the page",
            "reference/acl.md#redissons-layout",
        )
