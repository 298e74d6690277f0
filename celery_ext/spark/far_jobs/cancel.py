"""Cancels tasks that wait in the far tier or in Redis, and tells the truth about each."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.far.tier import FarTier
from celery_ext.spark.options import BrokerOptions
from celery_ext.spark.retry import Retry
from celery_ext.spark.write.app_settings import AppSettings
from celery_ext.spark.write.far_cancel import cancel_rows
from celery_ext.waiting import by_id
from kombu_delayq.store import SparkStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What became of a task, as of ``celery_ext.cancel``.
Outcome = Literal["cancelled", "chain_ended", "not_delayed"]

#: How long a call waits for the broker, in s.
_TIMEOUT_S = 60.0


def cancel(path: str, ids: Iterable[str] | DataFrame, **options: Any) -> dict[str, Outcome]:
    """Cancels tasks by id, in the far tier and in Redis.

    The answer is true also while a promotion runs: a task that is ``cancelled`` never runs.

    Args:
        path: URL or path of the far tier, as of the option ``far``.
        ids: Task ids; or a DataFrame whose only column has them, which is collected to the driver.
        **options: Options of the data source that name the broker.

    Returns:
        A word for each id: ``cancelled``; ``chain_ended``, if only the further steps of its delay chain are; or
        ``not_delayed``, if the task waited nowhere.

    Raises:
        InvalidSparkOption: An option is wrong, or the DataFrame has other columns.
        BrokerUnavailable: The broker does not answer.
        FarTierUnavailable: The files cannot be read.
        AnswerLost: Redis did not answer while it cancelled tasks.
    """
    wanted = BrokerOptions.parse({name: str(value) for name, value in options.items() if value is not None})
    tier = FarTier.of(path)
    broker = AppSettings.of(wanted.celery_app).broker_of(wanted)
    texts = list(dict.fromkeys(_listed(ids)))
    store = Retry(_TIMEOUT_S).until_done(broker.connect)
    try:
        return cancel_in(tier, store, texts)
    finally:
        store.close()


def cancel_in(tier: FarTier, store: SparkStore, ids: Sequence[str]) -> dict[str, Outcome]:
    """Cancels tasks as ``cancel`` does. ids: Without duplicates."""
    outcomes: dict[str, Outcome] = dict.fromkeys(ids, "not_delayed")
    cancelled = cancel_rows(tier, store, ids)
    # Redis is asked last: a row that was promoted meanwhile is there by now.
    for result in by_id.cancel(store, ids):
        if result.outcome != "not_delayed":
            outcomes[result.id] = result.outcome  # type: ignore[assignment]  # one of these words
    outcomes.update(dict.fromkeys(cancelled, "cancelled"))
    return outcomes


def _listed(ids: Iterable[str] | DataFrame) -> list[str]:
    if isinstance(ids, str):
        raise InvalidSparkOption("ids is a text; give a list of task ids, or a DataFrame of them")
    if isinstance(ids, Iterable):
        return list(ids)
    if len(ids.columns) != 1:
        raise InvalidSparkOption(f"the DataFrame of ids has {len(ids.columns)} columns; select the task ids only")
    return [str(row[0]) for row in ids.collect() if row[0] is not None]
