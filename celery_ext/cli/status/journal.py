"""The journal in the report of ``delayq status``: its JSON, and its lines."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from celery_ext.cli.colours import bad, good, warning
from celery_ext.cli.output import escaped, local_time, number_of, size
from celery_ext.delays.durations import in_words
from kombu_delayq.message.times import iso_of

if TYPE_CHECKING:
    from celery_ext.journal.state import JournalState

#: From which lag is shown as a warning, in s. A round of the promoter takes much less.
LAG_S = 60.0
#: What is wrong with Redis that no promoter has noted.
_FAULTS = {
    "lost": "Redis has lost data, and no promoter has noted it yet: start one, such as `delayq transfer`",
    "behind": "Redis was set back to older data, and no promoter has noted it: start one, such as `delayq transfer`",
    "other": "Redis belongs to another journal, so nothing is promoted: is journal_url right?",
}


def values_of(state: "JournalState", now_ms: float, lead_s: float) -> dict[str, Any]:
    """Returns the journal as ``--json`` prints it.

    Args:
        state: How it is.
        now_ms: Redis's clock, ms since the epoch.
        lead_s: How long before its due time a message is promoted, s.
    """
    next_ms = state.next_promotion_ms
    return {
        "url": state.url,
        "journal": state.option,
        "error": state.error,
        "promoter": state.promoter,
        "waiting": None if state.error else sum(state.waiting.values()),
        "offered": None if state.error else sum(state.offered.values()),
        "next_promotion": None if next_ms is None else iso_of(next_ms),
        "next_promotion_in_s": None if next_ms is None else round((next_ms - now_ms) / 1000, 3),
        "lag_s": round(state.lag_s, 3),
        "lead_s": lead_s,
        "watermark_age_s": None if state.watermark_age_s is None else round(state.watermark_age_s, 3),
        "size_bytes": state.size_bytes,
        "lost": [{"at": iso_of(loss.ended_ms), "messages": loss.messages} for loss in state.losses],
        "fault": state.fault,
    }


def lines(journal: Mapping[str, Any] | None) -> Iterator[str]:
    """Yields the lines about the journal; none without one."""
    if journal is None:
        return
    if journal["error"]:
        error = escaped(journal["error"])
        yield f"journal  {journal['url']} {bad(f'DOES NOT ANSWER: {error}')}"
        yield "         what waits there is not counted below, and far messages cannot be published"
    else:
        space = "" if journal["size_bytes"] is None else f", {size(journal['size_bytes'])}"
        alone = number_of(journal["waiting"], "message waits", "messages wait")
        rows = f"{alone} there alone, {number_of(journal['offered'], 'row')} of others{space}"
        yield f"journal  {journal['url']}: {rows}"
    yield f"promotes {_promoter(journal)}{_timing(journal)}"
    yield from (bad(f"LOST     {text}") for text in losses(journal))


def losses(journal: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for each loss of Redis, and for a fault of it."""
    for loss in journal["lost"]:
        yield (
            f"Redis lost data, noticed at {local_time(loss['at'])}: about {number_of(loss['messages'], 'message')} to "
            "restore, with `delayq journal restore`"
        )
    if journal["fault"]:
        yield _FAULTS[journal["fault"]]
    if journal["journal"] == "far" and (journal["lost"] or journal["fault"] in ("lost", "behind")):
        yield "what was published into Redis alone does not come back: journal is 'far'"


def _promoter(journal: Mapping[str, Any]) -> str:
    if not journal["promoter"]:
        return bad("nobody: what waits in the journal is not delivered")
    return good(escaped(journal["promoter"]))


def _timing(journal: Mapping[str, Any]) -> str:
    if journal["next_promotion"] is None:
        return ""
    if journal["lag_s"] >= journal["lead_s"]:
        return f", {bad(_behind(journal))}"
    if journal["lag_s"] >= 1:
        return f", {warning(_behind(journal)) if journal['lag_s'] >= LAG_S else _behind(journal)}"
    return f", next at {local_time(journal['next_promotion'])} ({in_words(journal['next_promotion_in_s'])})"


def _behind(journal: Mapping[str, Any]) -> str:
    return f"{in_words(journal['lag_s'], plain=True)} behind"
