"""Tasks that do not wait, but are where a feature looks: in its module ``elsewhere``."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from celery_ext.features import modules_of
from celery_ext.waiting.by_id import Only, Outcome

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore


class Elsewhere(Protocol):
    """Looks for tasks in one place, for one command.

    Attributes:
        outcome: What became of the tasks that are there.
    """

    outcome: Outcome

    def find(self, store: "DelayStore", ids: Sequence[str], only: Only | None = None) -> Mapping[str, str]:
        """Returns by id where tasks are, in words; without those that are not there.

        Args:
            store: The broker's store.
            ids: Task ids.
            only: Says which of the messages of an id are meant; None for all.
        """


def places(more: Iterable[str] = ()) -> list[Elsewhere]:
    """Returns what looks for tasks.

    Args:
        more: Names of queues of dead letters, beside those that Redis knows.
    """
    return [module.Elsewhere(more) for module in modules_of("elsewhere", but="waiting")]
