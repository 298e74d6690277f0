"""How a journal is, in words and as JSON: for ``delayq status`` and ``delayq journal check``."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from celery_ext.cli.output import bad, escaped, good, local_time, number_of, size, warning, when
from celery_ext.delays import in_words
from kombu_delayq.message import iso_of
from kombu_delayq.store import DelayStore

if TYPE_CHECKING:
    from celery_ext.journal import JournalState

#: What is wrong with Redis that no promoter has noted.
_FAULTS = {
    "lost": "Redis has lost data, and no promoter has noted it yet: start one, such as `delayq transfer`",
    "behind": "Redis was set back to older data, and no promoter has noted it: start one, such as `delayq transfer`",
    "other": "Redis belongs to another journal, so nothing is promoted: is journal_url right?",
}


def state_seen(store: DelayStore) -> "JournalState":
    """Returns how the journal is, as ``reading`` of a store with a journal has found it."""
    return cast("JournalState", store.beside)


def values(store: DelayStore, now_ms: float) -> dict[str, Any]:
    """Returns what ``--json`` prints of a store; None of one without a journal."""
    return {"journal": None if store.beside is None else _values(state_seen(store), store, now_ms)}


def _values(state: "JournalState", store: DelayStore, now_ms: float) -> dict[str, Any]:
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
        "lead_s": store.options.journal_lead,
        "watermark_age_s": None if state.watermark_age_s is None else round(state.watermark_age_s, 3),
        "size_bytes": state.size_bytes,
        "lost": [{"at": iso_of(loss.ended_ms), "messages": loss.messages} for loss in state.losses],
        "fault": state.fault,
        "leader": state.leader,
    }


def lines(store: DelayStore, now_ms: float) -> Iterator[str]:
    """Yields the lines about a journal; none of a store without one."""
    if store.beside is None:
        return
    state = state_seen(store)
    if state.error:
        yield f"journal  {state.url} {bad(f'DOES NOT ANSWER: {escaped(state.error)}')}"
        yield "         what waits there is not counted below, and far messages cannot be published"
    else:
        space = "" if state.size_bytes is None else f", {size(state.size_bytes)}"
        alone = number_of(sum(state.waiting.values()), "message waits", "messages wait")
        rows = f"{alone} there alone, {number_of(sum(state.offered.values()), 'row')} of others{space}"
        yield f"journal  {state.url}: {rows}"
    nobody = bad("nobody: what waits in the journal is not delivered")
    promoter = good(escaped(state.promoter)) if state.promoter else nobody
    yield f"promotes {promoter}{_timing(state, now_ms, store.options.journal_lead)}"
    yield from (bad(f"{'LOST' if state.has_lost else 'REFUSED':8} {text}") for text in losses(state))


def losses(state: "JournalState") -> Iterator[str]:
    """Yields a sentence for each loss of Redis, and for a fault of it."""
    for loss in state.losses:
        yield (
            f"Redis lost data, noticed at {local_time(iso_of(loss.ended_ms) or '')}: about "
            f"{number_of(loss.messages or 0, 'message')} to restore, with `delayq journal restore`"
        )
    if state.leader:
        yield state.leader
    elif state.fault:
        yield _FAULTS[state.fault]
    if state.option == "far" and state.has_lost:
        yield "what an app with journal 'far' has published into Redis alone does not come back"


def _timing(state: "JournalState", now_ms: float, lead_s: float) -> str:
    if state.next_promotion_ms is None:
        return ""
    behind = f"{in_words(state.lag_s, plain=True)} behind"
    if state.lag_s >= lead_s:
        return f", {bad(behind)}"
    if state.lag_s >= 1:
        return f", {warning(behind) if state.is_behind else behind}"
    return f", next at {when(state.next_promotion_ms, now_ms)}"
