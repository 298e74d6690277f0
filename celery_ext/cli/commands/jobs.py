"""``delayq jobs``: the bulk jobs that Redis remembers."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

import click
from celery.utils.functional import chunks
from click.shell_completion import CompletionItem

from celery_ext.cli.audited import audited, ids_in_words
from celery_ext.cli.broker import CliBroker, broker_in_words
from celery_ext.cli.colours import bad, warning
from celery_ext.cli.options import confirm, json_option, yes_option
from celery_ext.cli.output import cell, escaped, fit_table, json_line, number_of, table, when
from celery_ext.cli.progress import with_progress
from celery_ext.cli.queues import complete
from celery_ext.cli.stderr import QuietGroup, print_stderr
from celery_ext.delays.durations import in_words
from kombu_delayq.message.times import iso_of
from kombu_delayq.store import DelayStore
from kombu_delayq.store.bulk_jobs import Job

HEAD = ("ID", "STATE", "ROWS", "SENT", "REPEATED", "BAD", "CANCELLED", "BEGUN", "LAST WRITE", "QUEUES")
PART_HEAD = ("QUEUE", "STATE", "SENT", "REPEATED", "CANCELLED")
#: States of a job, as ``--state`` has them.
STATES = ("running", "publishing", "committed", "aborted")
#: How many jobs are read together, and set in columns together.
ROWS = 200
#: Most names that a shell is offered.
NAMES = 500
#: A job that has not ended, and was not written for so long, in s, is shown in another colour.
QUIET_S = 600.0


def complete_job(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the names of jobs; none if the broker does not answer soon."""
    return complete(context, incomplete, lambda store: list(islice(store.jobs.names(), NAMES)))


_ids = click.argument("ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_job)


@click.group(cls=QuietGroup, readers=("list", "show"))
def jobs() -> None:
    """Look at the bulk jobs that Redis remembers, or make it forget some.

    Each write of Spark is a bulk job, named by its `job_id`, and each micro-batch of a stream is one, named
    QUERY/BATCH. Redis remembers a job for `job_ttl`, 7 days by default, so that none of its rows is sent twice.
    """


@jobs.command("list")
@click.argument("pattern", required=False, default="")
@click.option(
    "-s", "--state", "states", type=click.Choice(STATES), multiple=True, help="Only in this state. May be repeated."
)
@json_option()
@click.pass_obj
def list_(broker: CliBroker, pattern: str, states: tuple[str, ...], as_json: bool) -> None:
    """List the jobs, as they are found; of each 200 the latest first.

    PATTERN selects names, such as 'close-orders-*'. ROWS and BAD are known once a job is committed. SENT counts
    messages that are on their way to workers, REPEATED those that came again and were not sent, CANCELLED tasks that
    the job has cancelled. A job that is `running` has not ended: its driver may write, or was killed.
    """
    with broker.store() as (_, store):
        now_ms, shown = store.now_ms(), 0
        for page in chunks(with_progress(_found(store, pattern), "listing", printing=True), ROWS):
            wanted = [job for job in page if not states or job.state in states]
            wanted.sort(key=lambda job: -job.base_ms)
            if not wanted:
                continue
            if as_json:
                lines = [json_line(_fields(job, now_ms)) for job in wanted]
            else:
                lines = fit_table(HEAD, [_row(job, now_ms) for job in wanted], right={2, 3, 4, 5, 6}, title=0)
            click.echo("\n".join(lines))
            shown += len(wanted)
    if not shown:
        print_stderr("Redis remembers no such bulk job" if pattern or states else "Redis remembers no bulk job")


@jobs.command()
@_ids
@json_option()
@click.pass_obj
def show(broker: CliBroker, ids: tuple[str, ...], as_json: bool) -> None:
    """Show all about jobs, queue by queue."""
    with broker.store() as (_, store):
        now_ms, found = store.now_ms(), _by_name(store, ids)
        for at, job in enumerate(found.values()):
            if as_json:
                click.echo(json_line({**_fields(job, now_ms), "parts": _parts(job)}))
            else:
                click.echo("\n".join([""] * (at > 0) + _text(job, now_ms)))
    if set(ids) - set(found):
        raise SystemExit(1)


@jobs.command()
@_ids
@click.option("-f", "--force", is_flag=True, help="Also jobs that have not ended, with what they have staged.")
@yes_option
@json_option()
@click.pass_obj
def drop(broker: CliBroker, ids: tuple[str, ...], force: bool, yes: bool, as_json: bool) -> None:
    """Remove what Redis remembers of jobs. Messages that they have sent stay.

    The same job id may be written anew then, so rows may be sent again. A job that has not ended is refused: its tasks
    may still write. With --force they are refused from then on, but Spark's next attempt of a task begins the job anew,
    and staged messages that are not sent yet are lost. Rows in a far tier stay, and stay committed.
    """
    with broker.store() as (connection, store):
        now_ms, found = store.now_ms(), _by_name(store, ids)
        chosen = [job for job in found.values() if force or job.is_ended]
        for job in found.values():
            if job not in chosen:
                print_stderr(f"{_refusal(job, now_ms)}. If nothing writes it any more, give --force")
        if chosen:
            confirm(f"{_question(chosen)} Drop on {broker_in_words(connection)}?", yes=yes)
        dropped = _drop(store, chosen, force=force)
        for name in dropped:
            click.echo(json_line({"id": name, "dropped": True}) if as_json else f"job {escaped(name)}: dropped")
    if set(ids) - set(dropped):
        raise SystemExit(1)


def _found(store: DelayStore, pattern: str) -> Iterator[Job]:
    for names in chunks(store.jobs.names(pattern), ROWS):
        yield from store.jobs.find_all(names)


def _by_name(store: DelayStore, ids: tuple[str, ...]) -> dict[str, Job]:
    """Returns the jobs that Redis remembers, and names the others on stderr."""
    found = {job.name: job for job in store.jobs.find_all(list(dict.fromkeys(ids)))}
    for name in dict.fromkeys(ids):
        if name not in found:
            print_stderr(f"Redis remembers no job {name!r}")
    return found


def _drop(store: DelayStore, chosen: list[Job], *, force: bool) -> list[str]:
    """Drops jobs, and returns the names of those that are dropped."""
    dropped = []
    staged = sum(job.staged for job in chosen)
    what = {**ids_in_words([job.name for job in chosen]), **({"staged_messages": staged} if staged else {})}
    with audited(store.audit, "jobs drop", what) as counts:
        for job in chosen:
            if _is_dropped(store, job, force=force):
                dropped.append(job.name)
                counts["dropped"] += 1
    return dropped


def _is_dropped(store: DelayStore, job: Job, *, force: bool) -> bool:
    word = store.jobs.drop(job.name, at_any=force)
    if word != "dropped":
        gone = "Redis remembers it no more" if word == "unknown" else "it has begun again, and is not dropped"
        print_stderr(f"job {job.name!r}: {gone}")
    return word == "dropped"


def _refusal(job: Job, now_ms: float) -> str:
    return f"job {job.name!r} is {job.state}, and was last written {in_words((_last_ms(job) - now_ms) / 1000)}"


def _question(chosen: list[Job]) -> str:
    names = ", ".join(escaped(job.name) for job in chosen[:5]) + ("" if len(chosen) <= 5 else ", …")
    sent = number_of(sum(job.enqueued for job in chosen), "message")
    parts = [
        f"{names}: Redis forgets what it has sent, {sent}. The same job id may be written anew then, so "
        "rows may be sent again."
    ]
    if staged := sum(job.staged for job in chosen):
        parts.append(f"{number_of(staged, 'staged message is', 'staged messages are')} lost.")
    if running := sum(job.state == "running" for job in chosen):
        parts.append(f"{number_of(running, 'job')} may still be written, to begin anew then.")
    if any(job.tier for job in chosen):
        parts.append("Rows in a far tier stay committed: while they are there, the same id writes nothing.")
    return " ".join(parts)


def _last_ms(job: Job) -> float:
    """Returns when a job was last written, or began if nothing has been written, ms since the epoch."""
    return job.base_ms if job.wrote_ms is None else job.wrote_ms


def _ago(ms: float | None, now_ms: float) -> str:
    return "-" if ms is None else in_words(min(ms - now_ms, -1.0) / 1000)


def _state(job: Job, now_ms: float) -> str:
    if job.state == "aborted":
        return bad(job.state)
    return warning(job.state) if not job.is_ended and now_ms - _last_ms(job) > QUIET_S * 1000 else job.state


def _row(job: Job, now_ms: float) -> list[str]:
    return [
        cell(job.name),
        _state(job, now_ms),
        *(_count(number) for number in (job.rows, job.sent, job.repeated, job.bad, job.cancelled)),
        when(job.base_ms, now_ms),
        _ago(job.wrote_ms, now_ms),
        cell(", ".join(job.queues) or "-"),
    ]


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _fields(job: Job, now_ms: float) -> dict[str, Any]:
    """Returns the JSON fields of a job."""
    wrote_ms, ended_ms = job.wrote_ms, job.ended_ms
    return {
        "id": job.name,
        "state": job.state,
        "queues": list(job.queues),
        "rows": job.rows,
        "sent": job.sent,
        "staged": job.staged,
        "repeated": job.repeated,
        "sent_before": job.sent_before,
        "twice": job.twice,
        "bad": job.bad,
        "dead_lettered": job.dead_lettered,
        "cancelled": job.cancelled,
        "far": job.late,
        "committed": iso_of(ended_ms) if ended_ms is not None and job.state == "committed" else None,
        "begun": iso_of(job.base_ms),
        "last_write": None if wrote_ms is None else iso_of(wrote_ms),
        "ended": None if ended_ms is None else iso_of(ended_ms),
        "age_s": round((now_ms - job.base_ms) / 1000, 3),
        "run": job.run,
        "runs": job.runs,
        "superseded_runs": job.superseded,
    }


def _parts(job: Job) -> list[dict[str, Any]]:
    return [asdict(part) for part in job.parts]


def _not_sent(job: Job) -> str:
    """Returns in words why the run that was committed has left messages out, if it has."""
    if not (job.sent_before or job.twice):
        return ""
    return f"; of the run that was committed {job.sent_before or 0:,} sent before, {job.twice or 0:,} twice in the data"


def _text(job: Job, now_ms: float) -> list[str]:
    _, _, tier = (job.tier or "").partition(" ")
    taken_over = f", of which {job.superseded:,} had not ended when a later one began" if job.superseded else ""
    pairs = {
        "id": escaped(job.name),
        "state": _state(job, now_ms),
        "begun": when(job.base_ms, now_ms),
        "last write": None if job.wrote_ms is None else when(job.wrote_ms, now_ms),
        job.state if job.is_ended else "ended": None if job.ended_ms is None else when(job.ended_ms, now_ms),
        "runs": f"{job.runs:,}{taken_over}",
        "rows": None if job.rows is None else f"{job.rows:,}",
        "sent": f"{job.sent:,}",
        "staged": f"{job.staged:,}" if job.staged else None,
        "repeated": f"{job.repeated:,}{_not_sent(job)}",
        "bad": None if job.bad is None else f"{job.bad:,}, {job.dead_lettered or 0:,} of them dead letters",
        "cancelled": f"{job.cancelled:,}",
        "far": f"{job.late:,} in {escaped(tier)}" if job.late else None,
    }
    lines = [f"{name:<10}  {value}" for name, value in pairs.items() if value is not None]
    rows = [
        [cell(part.queue), part.state, f"{part.sent:,}", f"{part.repeated:,}", f"{part.cancelled:,}"]
        for part in job.parts
    ]
    return lines + (["", *table(PART_HEAD, rows, right={2, 3, 4})] if rows else [])
