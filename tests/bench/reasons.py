"""Why kombu-delayq does not lead, where it does not."""

_CELERY = (
    "Celery routes, serializes and announces each message in Python before any transport sees it, and stock Celery "
    "takes as long as kombu-delayq. What is left of it for many messages at once is in "
    "[`send_many`](how-to/send-many.md), which is what the bulk row measures"
)
_MESSAGES = (
    "Of 1,000 bytes of arguments Celery makes a message of 3,200: it has them in the body, as base64, and in the "
    "header `argsrepr`. Stock Celery keeps as much"
)
_WHOLE = (
    "kombu-delayq moves Celery's whole message, three times the size of the arguments, to the list from which any "
    "Celery worker takes it. Others move an id, and leave the body to be read by the worker later, or leave the "
    "message where it is"
)
_BURST = (
    "All messages are in the queue a fraction of a second after they are due; then the row shows how fast a worker "
    "of Celery begins tasks that do nothing, which no transport changes"
)
_HOPS = (
    "Stock Celery has the tasks in its worker's memory when they are due, and nothing is asked of Redis then. That "
    "is what costs it the memory above, and what loses and doubles tasks when a worker goes. Through Redis a task "
    "takes the transfer, the worker's `BRPOP` and the reading of the message: two to three milliseconds"
)
_IDLE = (
    "A worker of Celery asks Redis for messages each second, and tells and hears of heartbeats; kombu-delayq adds "
    "the polls of the leading transfer worker and of its deputies, and rare looks of those that stand by. Who asks "
    "less waits in one process for all its consumers, has one scheduler for all, or has none that would go on when "
    "it dies"
)
_CHATTER = (
    "Most of it are Celery's heartbeats, each of which Redis sends to all other workers (gossip): with stock Celery "
    "as well. The rows of workers that keep to themselves leave that out"
)

#: The reason in Markdown, by the key of a measure. The page shows it only where others are better.
REASONS: dict[str, str] = {
    "enqueue_one": f"{_CELERY}.",
    "enqueue_one_cpu": f"{_CELERY}.",
    "enqueue_bulk": f"{_CELERY}.",
    "enqueue_bulk_cpu": f"{_CELERY}.",
    "enqueue_bulk_reads": (
        "`send_many` sends a page of about 250 kB in one call, so that Redis is never busy with one for long. "
        "Others put more into one."
    ),
    "kept": (
        f"{_MESSAGES}. The due time and the index add 200 bytes in the form `hash`; the form `list` has each message "
        "twice, as Redisson has. A task with `argsrepr` set to a short text saves a third."
    ),
    "worker": "What is left are the pages that a worker's memory takes and gives back without a message to keep.",
    "transfer": f"{_WHOLE}.",
    "longest": (
        "One call of kombu-delayq moves up to 200 messages, in about 2 ms of Redis's time. Those who are below move "
        "one message at a time, or none. By the clock it includes what other processes take of the cores."
    ),
    "cancel": (
        "A cancel is two round trips: it ends the delay chain of a step that runs just now, looks through all "
        "queues, takes the message out, and its result becomes `REVOKED`; in Redis that takes 0.1 ms. The ids of "
        "one call share the round trips. Who is faster removes a job from the one queue that the caller names, or "
        "only notes that an id shall not be run."
    ),
    "cancel_worst": "As above.",
    "poisson_p50": f"{_HOPS}.",
    "poisson_p99": f"{_HOPS}.",
    "poisson_max": f"{_HOPS}.",
    "burst_p50": f"{_BURST}.",
    "burst_p99": f"{_BURST}.",
    "burst_max": f"{_BURST}.",
    "burst_begun": f"{_BURST}.",
    "idle_commands": f"{_IDLE}.",
    "idle_cpu": f"{_CHATTER}.",
    "quiet_commands": (
        "Those are the polls of the leader and its deputies, and the [rarer looks](how-to/transfer-workers.md) of all "
        "other workers, so that no death of any of them stops the delivery."
    ),
    "quiet_cpu": (
        "The difference are the polls of the leader and its deputies, and the "
        "[rarer looks](how-to/transfer-workers.md) of all other workers, so that no death of any of them stops the "
        "delivery."
    ),
    "offer_cpu": (
        f"{_MESSAGES}, but puts it at the end of a list without an order. kombu-delayq keeps it by its due time and "
        "by its id, so that it can be found again, in a script that does not store it twice."
    ),
    "transfer_cpu": f"{_WHOLE}.",
    "path_cpu": (
        "Those who take less keep no order by due time before a worker has the message in its memory, or move an id "
        "instead of a message that is three times the size of its arguments."
    ),
}
