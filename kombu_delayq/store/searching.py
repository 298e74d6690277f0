"""Searches queues for messages by their ids, in both layouts, for the operations on single messages."""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, NamedTuple

from kombu.log import get_logger
from redis.exceptions import NoPermissionError, ResponseError

from kombu_delayq.redis.replies import as_text, readable
from kombu_delayq.store.client import ScriptCall, StorePart
from kombu_delayq.store.types import QueueForm, Waiting, rows_of, waiting_of

logger = get_logger(__name__)

#: About the largest number of bytes that one call looks up, which limits how long it keeps Redis busy.
MAX_BYTES = 300_000
#: Largest number of messages of other clients that one call makes findable.
INDEX_COUNT = 100


class SearchScript(NamedTuple):
    """A script that looks for messages by their ids, and may do something with them.

    Attributes:
        operation: Name of the script. For each of the ids it replies with the rows of its messages, and ends early
            when its reply is long enough.
        call: Returns KEYS and ARGV for a queue in one layout, and ids.
    """

    operation: str
    call: Callable[[QueueForm, Sequence[str]], ScriptCall]


class Searching(StorePart):
    """Finds messages by their ids, in both layouts, also while a conversion moves them."""

    def index(self, queue: str) -> int:
        """Makes messages that others have offered in Redisson's layout findable by their ids. Returns how many."""
        found: int = 0
        after: list[Any] = ["", "", ""]
        while True:
            args = [*after, INDEX_COUNT, MAX_BYTES]
            word, added, *after = self._client.run("index", self._client.stored(queue, "redisson"), args, "redisson")
            found += int(added)
            if as_text(word) == "end":
                return found

    def _of_ids(
        self, script: SearchScript, queues: Sequence[str], ids: Sequence[str], found: dict[str, list[Waiting]]
    ) -> dict[str, list[Waiting]]:
        """Runs a script for the messages of some ids, wherever they are: in both layouts, and not findable so far.

        Args:
            script: The script.
            queues: Names of the queues to search.
            ids: Task ids, or ids under which messages are stored.
            found: Filled with the result, part by part, so that a caller has the parts that came before an error.

        Returns:
            ``found``: by id, its messages, the next due first.
        """
        forms = [QueueForm(queue, self._client.layout) for queue in queues] if ids else []
        others = self._search(script, forms, ids, found)
        self._search(script, others, ids, found)
        missing = [identity for identity in ids if identity not in found]
        # A conversion may have moved messages out of the other layout between these two.
        again = [QueueForm(form.queue, self._client.layout) for form in others if missing]
        self._search(script, again, missing, found)
        missing = [identity for identity in missing if identity not in found]
        grown = [
            form for form in (*forms, *others) if missing and form.layout == "redisson" and self._index(form.queue)
        ]
        self._search(script, grown, missing, found)
        for messages in found.values():
            messages.sort(key=lambda message: message.due_ms)
        return found

    def _search(
        self, script: SearchScript, forms: Sequence[QueueForm], ids: Sequence[str], found: dict[str, list[Waiting]]
    ) -> list[QueueForm]:
        """Searches queues for ids and adds what it finds. Returns the queues that also have messages in the other.

        It logs a queue that cannot be searched and goes on, so that the results of other queues are not lost.

        Raises:
            redis.exceptions.ResponseError: None of the queues can be searched, and nothing has been found.
        """
        others = [
            QueueForm(form.queue, other) for form in forms for other in self._client.forms[1:] if form.layout != other
        ]
        there: list[QueueForm] = []
        done = dict.fromkeys(forms, 0)  # how many of the ids were searched in each queue and form
        while done:
            calls = [script.call(form, ids[count:]) for form, count in done.items()]
            # Before and after: a conversion may move the last message there, or the first one away, in between.
            replies, counts = self._client.run_each(
                script.operation, calls, [("ZCARD", self._client.due(*other)) for other in others]
            )
            there += compress(others, (any(map(self._is_there, both)) for both in counts))
            others = []
            self._check(dict(zip(done, replies, strict=True)), -1 if found else len(forms))
            for form, reply in zip(list(done), replies, strict=True):
                if isinstance(reply, ResponseError):
                    done[form] = len(ids)
                    continue
                for identity, parts in zip(ids[done[form] :], reply, strict=False):
                    if parts:
                        found.setdefault(identity, []).extend(waiting_of(*form, row) for row in rows_of(parts))
                done[form] += len(reply)
            done = {form: count for form, count in done.items() if count < len(ids)}
        return there

    def _is_there(self, reply: Any) -> bool:
        """Whether a reply counts messages in the other layout. True after an error, which the search will report."""
        if isinstance(reply, NoPermissionError):
            self._client.drop_other_form(reply)
            return False
        return bool(reply)

    def _check(self, replies: dict[QueueForm, Any], most: int) -> None:
        """Logs which queues cannot be searched; raises the first error if their number is ``most``."""
        failed = {form: reply for form, reply in replies.items() if isinstance(reply, Exception)}
        if len(failed) == most:
            raise next(iter(failed.values()))
        for form, error in failed.items():
            logger.error("queue %r cannot be searched for delayed messages: %s", form.queue, readable(error))

    def _index(self, queue: str) -> int:
        try:
            return self.index(queue)
        except ResponseError as error:
            logger.error("queue %r cannot be searched for messages of other clients: %s", queue, readable(error))
            return 0
