"""Checks of the Redis servers behind a broker: what they keep, how long, and what time it is there."""

from collections.abc import Callable, Mapping
from typing import Any

from celery_ext.delays.durations import in_words
from celery_ext.doctor.finding import Finding, Findings, Level
from celery_ext.doctor.subject import Subject
from kombu_delayq.errors import UnsupportedRedis

#: From which share of its memory on a server is nearly full, and full.
NEARLY_FULL, FULL = 0.8, 0.95
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


def _role(name: str, info: Mapping[str, Any]) -> Findings:
    if info.get("role") == "slave":
        yield Finding(
            Level.ERROR,
            f"{name} is a replica, and takes no writes",
            "name the primary in the broker URL, or the Sentinels",
            "how-to/broker-urls.md#sentinel",
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
    restorable = bool(subject.options.journal_url) and subject.options.journal == "all"
    saves = subject.the_store.servers.setting("save")

    def look(name: str, info: Mapping[str, Any]) -> Findings:
        yield from _failed_writes(name, info)
        if "aof_enabled" in info and not int(info["aof_enabled"]):
            yield _without_log(name, info, saves[name], restorable=restorable)

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
    """Returns what it means that a server has no append-only file.

    Args:
        name: The server's address.
        info: Its fields of INFO.
        save: Its setting ``save``; None if it does not tell.
        restorable: Whether a journal has all messages.
    """
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
    share = used / bound if bound else 0
    if share >= NEARLY_FULL:
        of = "maxmemory" if limit else "the machine's memory, and has no maxmemory"
        effect = "it is full: publishing fails" if share >= 1 else "when it is full, publishing fails"
        yield Finding(
            Level.ERROR if share >= FULL else Level.WARNING,
            f"{name} uses {share:.0%} of {of}: {effect}",
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
                "how-to/acl.md",
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
            "how-to/clocks.md",
        )
    ahead = [offset.ahead_s for offset in subject.clocks.values()]
    if len(ahead) > 1 and max(ahead) - min(ahead) >= CLOCK_OFF_S:
        yield Finding(
            Level.WARNING,
            f"the clocks of the nodes differ by {in_words(max(ahead) - min(ahead), plain=True)}: each queue goes by "
            "the clock of its own node",
            "keep clocks in step, by NTP",
            "how-to/clocks.md",
        )
