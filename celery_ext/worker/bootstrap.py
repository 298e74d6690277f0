"""Prepares every worker on our transport, and every process that the ``celery`` command starts."""

from typing import Any

from celery import _state
from celery.signals import beat_init, celeryd_after_setup, worker_init, worker_ready, worker_shutdown
from kombu.log import get_logger
from redis.exceptions import RedisError

from celery_ext.celery_tasks import declares_chain
from celery_ext.connection import bypasses, channel_of_consumer, store_of_consumer, uses_delayq
from celery_ext.delays import extend_app, is_installed, use_fast_publisher
from celery_ext.periodic import declare_periodic, start_armer, stop_armer
from celery_ext.publish import FastPublisher
from kombu_delayq.errors import DelayqError, quoted

logger = get_logger(__name__)


def install(app: Any, *, fast_publish: bool = False, periodic: bool = False) -> None:
    """Lets an app use ``delay_chain``, ``delay_level`` and ``dead_letter_queue``, in tasks declared before and after.

    Workers on our transport call it themselves. Publishers need it for ``delay_level``, and to have the
    declarations of their tasks checked. A second call changes nothing, but may add ``fast_publish`` and ``periodic``.

    Args:
        app: The app.
        fast_publish: Whether ``delay``, ``apply_async``, ``retry`` and ``send_task`` make messages from templates,
            which takes a fraction of the time. The messages are those of Celery, byte for byte.
        periodic: Whether workers of this app arm the entries of ``beat_schedule`` and ``add_periodic_task``, so that no
            ``celery beat`` has to run.

    Raises:
        InvalidDelayChain: A task that is declared already has a wrong schedule. A task that is declared later raises
            the error at its declaration or, as Celery's tasks are lazy, when the app is first used.
        InvalidDeadLetter: The same for ``dead_letter_on``.
    """
    extend_app(app)
    if fast_publish:
        use_fast_publisher(app, FastPublisher(app))
    if periodic:
        declare_periodic(app)
    attach()  # for workers that the `celery` command does not start


def attach() -> None:
    """Connects to Celery's signals. A second call changes nothing."""
    worker_init.connect(refuse_bypassed_transport, weak=False, dispatch_uid="delayq-bypassed-transport")
    worker_init.connect(begin, weak=False, dispatch_uid="delayq-remote-control")
    beat_init.connect(install_in, weak=False, dispatch_uid="delayq-beat")
    celeryd_after_setup.connect(report, weak=False, dispatch_uid="delayq-report")
    worker_ready.connect(start_armer, weak=False, dispatch_uid="delayq-periodic")
    worker_shutdown.connect(stop_armer, weak=False, dispatch_uid="delayq-periodic-end")


def begin(sender: Any = None, **kwargs: Any) -> None:
    """Lets a worker's revoke and inspect reach the tasks that wait in Redis, and gives its tasks delay chains.

    Args:
        sender: The worker; None if the worker has begun already, and the caller does not know it.
        **kwargs: Further arguments of the signal ``worker_init``.
    """
    from celery_ext.worker.celery_patches import patch_commands  # brings in all of Celery's worker

    celeryd_after_setup.connect(report, weak=False, dispatch_uid="delayq-report")
    worker_ready.connect(note_chains, weak=False, dispatch_uid="delayq-chains")
    worker_ready.connect(declare_limits, weak=False, dispatch_uid="delayq-limits")
    worker_ready.connect(look_at_start, weak=False, dispatch_uid="delayq-doctor")
    patch_commands()
    if sender is not None:
        install_in(sender)
        return
    for app in list(_state._get_active_apps()):
        if app.configured:  # any other app has no connection, and reading its settings may run any code
            _install(app)


def install_in(sender: Any, **kwargs: Any) -> None:
    """Gives the app of a worker or of beat what ``install`` gives, if it uses our transport.

    Raises:
        SystemExit: A task is declared wrongly. Celery would only log an exception of another type.
    """
    try:
        delayed = _install(sender.app)
    except DelayqError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from error
    if delayed and hasattr(sender, "consumer_cls"):  # a worker, and not beat
        from celery_ext.worker.celery_patches import patch_worker  # brings in all of Celery's worker

        patch_worker(sender)


def report(instance: Any, **kwargs: Any) -> None:
    """Warns of tasks of a starting worker whose declaration has no effect, and lets it leave dead letters alone."""
    from celery_ext.delays import problems

    for problem in problems(instance.app):
        logger.warning("%s", problem)
    leave_dead_letters(instance.app)


def leave_dead_letters(app: Any) -> None:
    """Takes queues of dead letters out of those that a worker consumes, unless ``-Q`` says which it consumes."""
    from celery_ext.dead_letters import routes  # brings in much that the start of another process does not need

    queues = app.amqp.queues
    left = {*routes.named_by(app)}.intersection(queues.consume_from) - {app.conf.task_default_queue}
    if left and queues._consume_from is None and is_installed(app):
        queues.deselect(left)
        logger.warning(
            "this worker does not consume %s, where dead letters are: it would run each of them again at once. If that "
            "is meant, name all of its queues with -Q",
            ", ".join(map(quoted, sorted(left))),
        )


def note_chains(sender: Any, **kwargs: Any) -> None:
    """Notes in Redis that delay chains are in use, before a worker runs the first task that has one.

    Redis has seen no step of a chain whose task is in its first run. With the note, a cancel ends that chain, too.
    """
    store = store_of_consumer(sender)
    if store is not None and declares_chain(sender.app):
        try:
            store.chains.use_chains()
        except RedisError as error:  # the first step that is stored notes it too
            logger.warning("Redis cannot note that delay chains are in use: %s", error)


def declare_limits(sender: Any, **kwargs: Any) -> None:
    """Writes the limits of the transport option ``limits``: those of the worker that started last hold."""
    store = store_of_consumer(sender)
    if store is not None and store.options.limits is not None:
        from celery_ext.limits import declare_limits

        declare_limits(store, list(sender.app.amqp.queues.consume_from))


def look_at_start(sender: Any, **kwargs: Any) -> None:
    """Logs one line if the quick checks of ``delayq doctor`` find something bad."""
    from celery_ext.doctor import examine_start

    channel = channel_of_consumer(sender)
    if channel is not None and (found := examine_start(sender.app, channel)):
        shown = "; ".join(f"{finding.check}: {finding.found}" for finding in found)
        logger.warning("`delayq doctor` finds %s", shown)


def refuse_bypassed_transport(sender: Any, **kwargs: Any) -> None:
    """Ends a worker whose broker URL makes kombu overlook our transport.

    Raises:
        SystemExit: The message says what to write instead. Celery would only log an exception of another type.
    """
    for url, scheme in bypasses(sender.app.conf):
        raise SystemExit(f"broker_url {url} makes kombu overlook broker_transport; write {scheme}://… instead")


def _install(app: Any) -> bool:
    try:
        with app.connection_for_read() as connection:
            delayed = uses_delayq(connection)
    except Exception as error:  # the process reports it itself when it connects
        logger.info("it is not known which transport app %s uses: %s", app.main, type(error).__name__)
        delayed = False
    if delayed:
        install(app)
    return delayed
