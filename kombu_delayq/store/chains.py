"""The store's operations on delay chains: the next step, and the end of a chain that is cancelled."""

from collections.abc import Sequence
from typing import NamedTuple

from redis.exceptions import NoScriptError

from kombu_delayq.redis import Command, Stored, ZSetKey, checked, is_full, operation
from kombu_delayq.store.client import Into, StoreClient
from kombu_delayq.store.lookup import cancel_chains, warn_not_ended
from kombu_delayq.store.part import StorePart
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.store.types import Offer
from kombu_delayq.text import as_bytes, as_text

#: About how many cancelled ids Redis keeps while no use of delay chains is known, in case a chain begins just now.
NOTES_WITHOUT_CHAINS = 1_000
#: How many chains Redis remembers after the due times of their latest steps.
KNOWN_CHAINS = 10_000


class CancelledChains(NamedTuple):
    """The result of noting cancelled ids.

    Attributes:
        queues: Names of the queues that may hold messages of the ids.
        chains: The ids of known delay chains: a step of such a chain may wait, or run.
    """

    queues: list[str]
    chains: set[str]


@operation()
def step(*, into: Into, expire: int, chain: str, offer: Offer, stores: bool) -> str: ...
@operation()
def check_chain(*, cancelled: ZSetKey, chains: ZSetKey, ttl: int, most: int, identity: bytes, due: str) -> str: ...
@operation()
def undo_step(*, keys: Stored, chain: str, identity: bytes) -> str: ...


class DelayChains(StorePart):
    """Stores the steps of delay chains, and ends chains. To keep calls short, give a few hundred ids at a time."""

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client, registry)
        self._is_noted = False  # that chains are in use

    def step(self, queue: str, chain: str, offer: Offer, expire_ms: int = 0, *, stores: bool = True) -> str:
        """Stores the next step of a delay chain.

        Args:
            queue: The queue to which the step goes when it is due.
            chain: A text that the bodies of all steps of this chain contain, and no other message contains.
            offer: The message.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
            stores: Whether Redis keeps the step; otherwise it waits elsewhere.

        The queue is in another slot than ``cancelled`` and ``chains``, so this takes three calls: ``check_chain`` asks
        whether the chain is cancelled, the step is stored, and ``check_chain`` asks once more. A cancel notes the id
        first and searches the queues then. If it notes the id before the second question, this undoes the step. If it
        notes the id later, the step is stored and its queue registered already, and the search finds it. A step that
        has left its queue before it could be undone, because it was due at once, was delivered as if the cancel had
        come a moment later: the note stops the step after it. Where a worker has died before the second question, its
        run comes again, and takes the step out.

        Returns:
            The place of the message: ``first``, ``head`` or ``behind``. The message replaces an earlier step that still
            waits. Or, with nothing stored, ``waits`` (this step or a later one waits already) or ``cancelled`` (the
            chain was cancelled).
        """
        if not self.check_chain(offer):
            if stores:
                self.undo_step(queue, chain, offer)
            return "cancelled"
        call = step(into=self._client.into(queue), expire=expire_ms, chain=chain, offer=offer, stores=stores)
        word = self._registry.run(queue, call)
        if stores and word != "waits" and not self.check_chain(offer) and self.undo_step(queue, chain, offer):
            return "cancelled"
        return word

    def check_chain(self, offer: Offer) -> bool:
        """Asks whether a chain may take this step, and notes when it is due; False if the chain was cancelled."""
        call = check_chain(
            **self._of_chains, ttl=self._ttl_ms, most=KNOWN_CHAINS, identity=as_bytes(offer.id), due=offer.due
        )
        return self._client.run(call) == "ready"

    def undo_step(self, queue: str, chain: str, offer: Offer) -> bool:
        """Takes steps of a chain that was cancelled out of the store. False if none waits there."""
        call = undo_step(keys=self._client.stored(queue), chain=chain, identity=as_bytes(offer.id))
        return self._client.run(call) == "undone"

    def cancel_chains(self, ids: Sequence[str], *, in_use: bool = False) -> CancelledChains:
        """Notes ids whose delay chains must take no further step, then reads the names of all queues; one round trip.

        A step stored before this call is in one of these queues; a step offered after it is refused. A Redis that is
        too full for the notes is logged and is no error: a cancellation frees memory, so it must work then too.

        Args:
            ids: Task ids.
            in_use: Whether the caller knows that chains are in use. Otherwise Redis may keep only the latest notes.
        """
        most, keys = NOTES_WITHOUT_CHAINS, map(as_bytes, ids)
        call = cancel_chains(**self._of_chains, ttl=self._ttl_ms, most=most, in_use=in_use, ids=keys)
        read: Command = ("SMEMBERS", self._keys.queues)
        known, queues = self._client.replies([self._client.command(call), read])
        if isinstance(known, NoScriptError):
            known, queues = self._client.replies([self._client.command(call, by_text=True), read])
        if is_full(known):
            warn_not_ended(known)
            known = []
        checked((known, queues))
        return CancelledChains(
            sorted(filter(self._keys.is_usable, map(as_text, queues))), {ids[at - 1] for at in known}
        )

    def accept(self, ids: Sequence[str]) -> int:
        """Undoes ``cancel_chains``. Returns how many of the ids were noted."""
        return int(self._client.ask("ZREM", self._keys.cancelled, *map(as_bytes, ids))) if ids else 0

    def use_chains(self) -> None:
        """Notes, once, that delay chains are in use, so that Redis keeps cancelled ids as long as a step may run."""
        if not self._is_noted:
            self._client.ask("ZADD", self._keys.chains, "inf", "")
            self._is_noted = True

    @property
    def _of_chains(self) -> dict[str, str]:
        return {"cancelled": self._keys.cancelled, "chains": self._keys.chains}

    @property
    def _ttl_ms(self) -> int:
        return round(self._client.options.cancelled_ttl * 1000)
