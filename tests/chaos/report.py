"""The report of a run, as a table for people."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from tests.chaos.run import Outcome

#: How many findings of a kind are shown whole.
SHOWN = 10
#: How many keys that stay for one reason are named.
KEYS_SHOWN = 4


def lines(outcome: Outcome) -> Iterator[str]:
    """Yields the lines of the report."""
    plan, seconds, tasks = outcome.plan, outcome.seconds, outcome.tasks
    kinds_of_run = {"Sentinel": plan.sentinel, "journal": plan.journal, "cluster": plan.cluster}
    kind = "".join(f", {name}" for name, is_so in kinds_of_run.items() if is_so)
    yield f"seed {plan.seed}, consume={plan.consume}, lease {plan.lease_s:g} s{kind}"
    yield f"published for {seconds['published']:.0f} s, drained after {seconds['drained']:.0f} s"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in tasks.items() if kind not in ("all", "runs", "confirmed"))
    yield f"{tasks['confirmed']:,} tasks published ({kinds}), {tasks['runs']:,} runs"
    yield "runs by worker: " + ", ".join(f"{count:,} {name}" for name, count in sorted(outcome.runs_by.items()))
    yield "faults: " + ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.faults.items()))
    yield ""
    for what in ("lost", "early", "stuck", "over", "double"):
        yield f"{what:7} {outcome.count(what):>8,}"
        reasons = Counter((finding.by, reason(finding.why)) for finding in outcome.findings if finding.what == what)
        for (by, why), count in sorted(reasons.items(), key=lambda item: -item[1]):
            yield f"        {count:>8,}  {by}: {why}"
    yield ""
    yield f"left in Redis{'' if outcome.drained else ', which did not drain'}:"
    for why, group in groupby(sorted(outcome.left, key=lambda left: left.why), key=lambda left: left.why):
        keys = [f"{left.key} ({left.type}, {left.length}) {' '.join(left.sample)}".rstrip() for left in group]
        # A key that must not stay is always named.
        named = keys[: KEYS_SHOWN if why else None]
        more = f" and {len(keys) - len(named)} more" if len(keys) > len(named) else ""
        yield f"  {why or 'NOT EXPECTED'}: {', '.join(named)}{more}"
    yield from (f"taken for dead, and lives: {consumer}" for consumer in outcome.false_returns)
    yield from (f"ended by itself: {crash}" for crash in outcome.crashes)
    yield from (f"ended by itself while it started: {crash}" for crash in outcome.false_starts)
    for what in ("lost", "early", "stuck", "over", "double"):
        bad = [finding for finding in outcome.findings if finding.what == what and finding.is_bad]
        for finding in bad[:SHOWN]:
            yield f"{what}: {finding.id}, {finding.by}, {finding.why}: {finding.details}"
    yield ""
    wrong = ", ".join(f"{count} {what}" for what, count in outcome.wrong().items())
    yield f"ours: {wrong}"


def reason(why: str) -> str:
    """Returns a reason without its figures."""
    return "before it was due" if " ms before it was due" in why else why
