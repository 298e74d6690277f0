"""Why kombu-delayq does not lead, where it does not."""

_CELERY = (
    "Celery routes, serializes and announces each message in Python before any transport sees it. Stock Celery takes "
    "as long as kombu-delayq. [Fast publishing](how-to/fast-publish.md) takes most of that from templates, and "
    "[`send_many`](how-to/send-many.md), which the bulk rows measure, does that work once for many messages"
)
_MESSAGES = (
    "Celery makes a message of 3,200 bytes of 1,000 bytes of arguments, because they are in the body, as base64, and "
    "in the header `argsrepr`. Stock Celery keeps as much"
)
_WHOLE = (
    "kombu-delayq moves Celery's whole message, three times the size of the arguments, to the list from which any "
    "Celery worker takes it. Others move an id, and the worker reads the body later, or they leave the message where "
    "it is"
)
_BURST = (
    "All messages are in the queue a fraction of a second after they are due. From then on the row shows how fast a "
    "Celery worker begins tasks that do nothing, which its pool of processes bounds"
)
_HOPS = (
    "Stock Celery has the tasks in its worker's memory when they are due, and needs no Redis then. That costs the "
    "memory above, and loses or repeats tasks when a worker dies. Through Redis a task takes the transfer, the "
    "worker's taking and the reading of the message: two to three milliseconds"
)
_IDLE = (
    "A Celery worker asks Redis for messages each second, and sends and receives heartbeats. kombu-delayq adds the "
    "polls of the leading transfer worker and of its deputies, and rare looks of the workers that stand by. "
    "Contenders that ask less wait in one process for all their consumers, have one scheduler for all, or have none "
    "that goes on when it dies"
)
_CHATTER = (
    "Most of it is Celery's heartbeats: Redis sends each to all other workers (gossip), with stock Celery as well. "
    "The rows of workers without gossip leave that out"
)

#: The reason in Markdown, by the key of a measure. The page shows it only where others are better.
REASONS: dict[str, str] = {
    "enqueue_one": f"{_CELERY}.",
    "enqueue_one_cpu": f"{_CELERY}.",
    "enqueue_bulk": f"{_CELERY}.",
    "enqueue_bulk_cpu": f"{_CELERY}.",
    "enqueue_bulk_reads": (
        "`send_many` sends a page of about 250 kB in one call, so that no call keeps Redis busy for long. Others "
        "put more into a call."
    ),
    "kept": (
        f"{_MESSAGES}. The due time and the index add 200 bytes in the form `hash`; the form `list` has each message "
        "twice, as Redisson has. A short `argsrepr` of one's own saves a third."
    ),
    "worker": "The rest is memory that a worker takes and gives back without keeping a message.",
    "transfer": f"{_WHOLE}.",
    "longest": (
        "One call of kombu-delayq moves up to 200 messages, in about 2 ms of Redis's time. Contenders below that "
        "move one message at a time, or none. The clock includes the time that other processes take of the cores."
    ),
    "cancel": (
        "A cancel takes two round trips, and 0.1 ms in Redis: it ends the delay chain of a step that runs just now, "
        "searches all queues, takes the message out, and makes its result `REVOKED`. The ids of one call share the "
        "round trips. Faster contenders remove a job from the one queue that the caller names, or only note that "
        "an id shall not run."
    ),
    "cancel_worst": "As above.",
    "alone": (
        "A Celery worker looks up the task, makes a request of it, hands it to a thread and sends events, all of it in "
        "Python. Faster contenders do so in JavaScript or Java."
    ),
    "alone_cpu": (
        "kombu-delayq notes each message as unacknowledged, so that none is lost with its worker, and in the format of "
        f"stock Celery, which has the whole message a second time. {_MESSAGES}."
    ),
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
        "The difference is the polls of the leader and its deputies, and the [rarer "
        "looks](how-to/transfer-workers.md) of all other workers. So the death of any of them does not stop delivery."
    ),
    "quiet_cpu": (
        "The difference is the polls of the leader and its deputies, and the [rarer "
        "looks](how-to/transfer-workers.md) of all other workers. So the death of any of them does not stop delivery."
    ),
    "offer_cpu": (
        f"{_MESSAGES}, but puts it at the end of a list without an order. kombu-delayq keeps it by due time and by "
        "id, so that it can be found again. Its script stores no message twice."
    ),
    "transfer_cpu": f"{_WHOLE}.",
    "path_cpu": (
        "Contenders that take less sort by due time only in a worker's memory, or move an id instead of a message "
        "of three times the size of its arguments."
    ),
}
