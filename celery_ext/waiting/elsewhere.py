"""Tasks that do not wait, but are where a feature looks: in its module ``elsewhere``."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from celery_ext.features import modules_of
from celery_ext.waiting.by_id import Only, Outcome

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore, Waiting


class Sighting(NamedTuple):
    """Where a task is.

    Attributes:
        queue: Name of its queue.
        words: The same for people, such as ``a dead letter in queue 'dead' (failed)``.
        advice: The same as a sentence, without a capital, which says what can be done.
    """

    queue: str
    words: str
    advice: str


class Elsewhere(Protocol):
    """Looks for tasks in one place, for one command.

    Attributes:
        state: What the tasks are that are there, such as ``dead_letter``.
        outcome: What became of those that were to be cancelled.
        template: The page of such a task, which knows its ``queue``.
    """

    state: str
    outcome: Outcome
    template: str

    def find(self, store: "DelayStore", ids: Sequence[str], only: Only | None = None) -> Mapping[str, Sighting]:
        """Returns by id where tasks are; without those that are not there.

        Args:
            store: The broker's store.
            ids: Task ids.
            only: Says which of the messages of an id are meant; None for all.
        """

    def cancel(
        self, store: "DelayStore", ids: Sequence[str], only: Only | None = None
    ) -> Mapping[str, "Sequence[Waiting]"]:
        """Does what a cancel does to tasks that are there. The arguments are as of ``find``.

        Returns:
            By id the messages that were removed; none of a task that stays.
        """


def places(more: Iterable[str] = ()) -> list[Elsewhere]:
    """Returns what looks for tasks.

    Args:
        more: Names of queues of dead letters, beside those that Redis knows.
    """
    return [module.Elsewhere(more) for module in modules_of("elsewhere", but="waiting")]
