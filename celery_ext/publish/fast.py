"""Sends single calls by templates, where a template says the same as Celery, and leaves all others to Celery."""

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from celery import Celery
from celery.app import amqp
from celery.app.task import Task
from celery.backends.base import Backend
from kombu.common import maybe_declare
from kombu.connection import Connection
from kombu.exceptions import LimitExceeded
from kombu.log import get_logger

from celery_ext.delays import LEFT_TO_CELERY, DelayChainTask
from celery_ext.limits import add_key
from celery_ext.publish.recipe import IN_OPTIONS, Recipe, applies_as_celery, has_receivers, recipe_of
from celery_ext.publish.shards import ShardRouter
from celery_ext.publish.template import NoTemplate
from celery_ext.publish.watch import Watch
from celery_ext.publish.write import Own, Uuids, Writer, again, is_in_utc
from kombu_delayq.channel import DelayedChannel

if TYPE_CHECKING:
    from kombu_delayq.store import Offer

logger = get_logger(__name__)

#: So many tasks and sets of options are known. Then all are forgotten: they may differ with every call.
_MOST_RECIPES = 1000
#: Options of calls that Celery has to send.
_OF_CELERY = frozenset(
    ("producer", "publisher", "connection", "router", "link", "link_error", "group_id", "chord", "chain")
)
#: Options that the app's ``send_task`` reads before this publisher.
_READ_BEFORE = frozenset(("delay_chain", "delay_level", "if_waiting", "waiting_key"))
_NO_OPTIONS = (None,) * len(IN_OPTIONS)
#: Longest expiry in s of which a message is made here.
_MOST_EXPIRES_S = 100 * 366 * 86400
#: Stands for an argument that is not given, where None means something else.
_OMITTED: Any = object()
#: Whether Celery, from 5.7 on, sends a callback, and tries it again in a way of its own.
_sends_callback: Callable[[], bool] = getattr(getattr(amqp, "_callback_publish_retry", None), "get", bool)


class LeftToCelery(Exception):  # no error: it ends our attempt
    """Celery has to make or to send this message."""


class _Noted(Watch):
    """An app as it is when this object is made, and what was made of it: threads get both, or neither.

    Attributes:
        recipes: By task and options: how their messages are made, or why Celery has to make them. None after the first
            call, which Celery sends: there may be no other.
        uuids: Draws ids.
        timeout_s: How long to wait for a connection; Celery before 5.6 waits without an end.
    """

    def __init__(self, app: Celery) -> None:
        super().__init__(app)
        self.recipes: dict[Hashable, Writer | str | None] = {}
        self.uuids = Uuids()
        self.timeout_s: float | None = app.conf.get("broker_pool_acquire_timeout")
        if self.why_not:
            logger.info("Celery makes all messages of app %s: %s", app.main, self.why_not)


class FastPublisher:
    """Sends the calls of an app. Threads may share it.

    Args:
        app: The app; ``install`` was called for it.
    """

    def __init__(self, app: Celery) -> None:
        self._app: Any = getattr(app, "_get_current_object", lambda: app)()
        self._last: _Noted | None = None

    def apply_async(self, task: Any, args: Any, kwargs: Any, options: Mapping[str, Any]) -> Any:
        """Sends a call of a task, with the arguments of ``Task.apply_async``.

        Returns:
            The result of the call; ``LEFT_TO_CELERY`` if ``send`` has to leave it to Celery, and None if it was not
            asked. Then nothing was sent.

        Raises:
            TypeError: The task does not take the arguments.
            InvalidLimit: As of ``add_key``.
            DelayqError: As of ``send``.
            kombu.exceptions.OperationalError: As of ``send``.

        Source: celery.app.task.Task.apply_async
        """
        noted = self._noted()
        if (
            noted.why_not
            or not noted.is_applied_untraced
            or not applies_as_celery(task)
            or not _READ_BEFORE.isdisjoint(options)
        ):
            return None
        soft = task.soft_time_limit
        if soft and task.time_limit and soft > task.time_limit:
            return None
        check = task.typing and getattr(task, "__header__", None)
        if check:
            check(*(args or ()), **(kwargs or {}))
        given = {**task._get_exec_options(), **options}
        if task.declared_limit is not None or "limit" in given:
            add_key(task.declared_limit, given.pop("limit", None), args, kwargs, given)
        given.setdefault("ignore_result", task.ignore_result)
        if "shadow" in given:
            given["shadow"] = given["shadow"] or None
        if task.priority:  # before 5.7 it is no execution option
            given.setdefault("priority", task.priority)
        make_result = None if _has_results_of_app(task) else task.AsyncResult
        result = self._send(noted, task.name, args, kwargs, given, make_result, task)
        return LEFT_TO_CELERY if result is None else result

    def send(self, name: str, args: Any = None, kwargs: Any = None, *positional: Any, **options: Any) -> Any:
        """Sends a call, with the arguments of ``Celery.send_task``.

        Returns:
            The result of the call; None if Celery has to send it, and nothing was sent.

        Raises:
            DelayqError: As in Celery's own way.
            kombu.exceptions.OperationalError: The broker does not answer.
        """
        noted = self._noted()
        if noted.why_not or positional:
            return None
        make_result, task = options.pop("result_cls", None), options.pop("task_type", None)
        return self._send(noted, name, args, kwargs, options, make_result or self._app.AsyncResult, task)

    def _send(
        self,
        noted: _Noted,
        name: str,
        args: Any,
        kwargs: Any,
        options: dict[str, Any],
        make_result: Callable[[str], Any] | None,
        task: Any,
    ) -> Any:
        """Sends a call, as ``send`` does, by the recipes of the app as noted, and takes its own out of the options.

        As keyword arguments, Python would compare each of the options with the names of all parameters.
        ``make_result`` is None for the app's own class of results.
        """
        if not _OF_CELERY.isdisjoint(options) and _take_of_celery(options):
            return None
        if _sends_callback() or has_receivers(name):
            return None
        take = options.pop
        countdown, eta, task_id = take("countdown", None), take("eta", None), take("task_id", None)
        expires, headers = take("expires", _OMITTED), take("headers", None)
        root_id, parent_id, reply_to = take("root_id", None), take("parent_id", None), take("reply_to", None)
        add_to_parent = take("add_to_parent", True)
        if noted.shard_routers:
            shard = _shard_of(noted.shard_routers, name, args, kwargs, options)
            if shard is None:
                return None
            options |= shard
        shown = _NO_OPTIONS if IN_OPTIONS.keys().isdisjoint(options) else _take_texts(options)
        is_expiring = None if expires is _OMITTED else expires is not None
        writer = self._writer(noted, name, options, is_expiring, bool(headers), task)
        if writer is None:
            return None
        app, recipe = self._app, writer.recipe
        parent = app.current_worker_task
        if parent and not (root_id and parent_id):
            root_id = root_id or parent.request.root_id or parent.request.id
            parent_id = parent_id or parent.request.id
        has_own = root_id or parent_id or reply_to or shown is not _NO_OPTIONS
        own = Own(headers, root_id, parent_id, reply_to, *shown) if has_own else None
        times = countdown, eta, expires if is_expiring else None
        offer = self._offer(noted, writer, args, kwargs, task_id, times, headers, own)
        if offer is None:
            return None
        backend = app.backend
        try:
            self._publish(noted, recipe, offer, own and own.chain_id, backend)
        except LeftToCelery:
            return None
        identity = str(offer.id)
        result = make_result(identity) if make_result else _class_of_results(app)(identity, backend, name)
        result.ignored = recipe.ignore_result
        if add_to_parent and parent:
            parent.add_trail(result)
        return result

    def _offer(
        self,
        noted: _Noted,
        writer: Writer,
        args: Any,
        kwargs: Any,
        task_id: Any,
        times: tuple[Any, Any, Any],
        headers: Any,
        own: Own | None,
    ) -> "Offer | None":
        """Makes the message of a call; None if Celery has to make it. ``times``: countdown, eta and expiry, or None."""
        countdown, eta, expires = times
        try:
            if (expires is not None or headers) and _is_celerys(writer.recipe, expires, headers):
                return None
            if not (own or task_id) and expires is None and (not countdown or is_in_utc(self._app)):
                offer = writer.plain.offer(args, kwargs, countdown, eta, headers)
                if offer is not None:
                    return offer
            return writer.write(
                args,
                kwargs,
                task_id or noted.uuids.draw(),
                is_new=not task_id,
                countdown=countdown,
                eta=eta,
                expires=expires,
                own=own or Own(headers),
            )
        except Exception as error:  # Celery makes it, or meets the same fault and raises its own error
            task = writer.recipe.name
            logger.info("Celery makes a message of task %s: ours fails with %s", task, type(error).__name__)
            return None

    def _noted(self) -> _Noted:
        """Returns the app as it is."""
        noted = self._last
        if noted is None or not noted.is_as_noted():
            noted = self._last = _Noted(self._app)
        return noted

    def _writer(
        self,
        noted: _Noted,
        name: str,
        options: Mapping[str, Any],
        expires: bool | None,
        headers: bool,
        task_type: Any,
    ) -> Writer | None:
        """Returns what makes messages with these options; None if Celery has to make them."""
        # With their types: 1, 1.0 and True are equal, and written differently.
        values = tuple(options.values())
        key = (name, expires, headers, task_type is None, *options, *values, *map(type, values))
        recipes = noted.recipes
        try:
            found = recipes.get(key, "")
        except TypeError:  # an option is a list or a dict
            return None
        if isinstance(found, Writer) and found.recipe.still_holds(self._app, noted.queues):
            return found
        if found == "":
            if len(recipes) >= _MOST_RECIPES:
                recipes.clear()
            recipes[key] = None
        elif not isinstance(found, str):
            more = {} if task_type is None else {"task_type": task_type}
            found = recipes[key] = self._made(noted, name, options, expires, headers, more)
            return found if isinstance(found, Writer) else None
        return None

    def _made(
        self,
        noted: _Noted,
        name: str,
        options: Mapping[str, Any],
        expires: bool | None,
        headers: bool,
        more: Mapping[str, Any],
    ) -> Writer | str:
        try:
            return Writer(self._app, recipe_of(self._app, name, options, expires, headers, **more), noted.uuids.draw)
        except NoTemplate as reason:
            logger.info("Celery makes messages of task %s: %s", name, reason)
            return str(reason)
        except Exception as error:  # Celery makes it, or meets the same fault and raises its own error
            logger.info("Celery makes messages of task %s: ours fails with %s", name, type(error).__name__)
            return f"ours fails with {type(error).__name__}"

    def _publish(self, noted: _Noted, recipe: Recipe, offer: "Offer", chain_id: str | None, backend: Any) -> None:
        """Publishes a message, and tries again as Celery does. Source: kombu.messaging.Producer.publish."""
        policy = recipe.retry_policy
        # The connections of Celery's producers. A producer itself would do nothing here.
        pool = noted.amqp.producer_pool.connections
        try:
            connection = _take(pool) or pool.acquire(block=True, timeout=noted.timeout_s)
        except LimitExceeded:
            raise LeftToCelery from None  # which raises its own error
        try:
            # Most backends do nothing.
            if not recipe.ignore_result and type(backend).on_task_call is not Backend.on_task_call:
                backend.on_task_call(noted.amqp.Producer(connection, auto_declare=False), str(offer.id))
            if policy is not None:
                connection.transport_options.update(policy)
            try:
                self._put(connection, recipe, offer, chain_id)
            except LeftToCelery:
                raise
            except Exception as error:
                if policy is None:
                    raise
                attempts = _Attempts(lambda: self._put(connection, recipe, again(offer), chain_id), error)
                connection.ensure(attempts, attempts, **policy)()
        except LeftToCelery:
            raise
        except Exception:
            with connection._reraise_as_library_errors():
                raise
        finally:
            _give_back(pool, connection)

    def _put(self, connection: Any, recipe: Recipe, offer: "Offer", chain_id: str | None) -> None:
        # Its property does the rest for a connection that is lost or new, and takes several times as long.
        channel = (connection.connected and connection._default_channel) or connection.default_channel
        if not isinstance(channel, DelayedChannel):
            raise LeftToCelery
        for queue in recipe.declare:
            if not (queue.can_cache_declaration and hash(queue) in connection.declared_entities):
                policy = recipe.retry_policy
                maybe_declare(queue, channel, retry=policy is not None, **(policy or {}))
        channel.put_one(recipe.template.queue, offer, chain_id, in_chain=recipe.in_chain)


def _take(pool: Any) -> Any:
    """Takes a connection out of a pool of kombu, as ``acquire`` does, in a quarter of the time; None if none is idle.

    Source: kombu.resource.Resource.acquire, queue.Queue.get
    """
    if not pool.limit or pool._closed:
        return None
    idle = pool._resource
    with idle.mutex:
        if not (idle.queue and isinstance(idle.queue[-1], Connection)):  # the others are to be made
            return None
        connection = idle.queue.pop()
    pool._dirty.add(connection)
    return connection


def _give_back(pool: Any, connection: Any) -> None:
    """Returns a connection to its pool. Source: kombu.resource.Resource.release, queue.Queue.put."""
    if not pool.limit:
        connection.release()
        return
    pool._dirty.discard(connection)
    with pool._resource.mutex:
        pool._resource.queue.append(connection)
        pool._resource.not_empty.notify()


def _shard_of(
    routers: list[Any], name: str, args: Any, kwargs: Any, options: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Returns the queue of a call as an option, if it is the matter of a ``ShardRouter``; else nothing.

    Celery asks no router after that one, but would if the call named the queue. None if one would have an answer then.
    """
    for at, router in enumerate(routers):
        route: dict[str, Any] | None = router(name, args, kwargs, options)
        if route is not None and isinstance(router, ShardRouter):
            named = {**options, **route}
            is_last = all(later(name, args, kwargs, named) is None for later in routers[at + 1 :])
            return route if is_last else None
        if route is not None:
            break
    return {}


def _has_results_of_app(task: Any) -> bool:
    """Whether the results of a task's calls are made in Celery's way, with the backend of the app.

    A task that runs may have one of its own for the moment, see ``DelayChainTask.backend``.
    """
    kind = type(task)
    return (
        kind.AsyncResult is Task.AsyncResult
        and super(DelayChainTask, kind).backend is Task.backend
        and task._backend is None
        and task.request_stack.top is None
    )


def _class_of_results(app: Any) -> Callable[..., Any]:
    """Returns ``app.AsyncResult``, from where its cached property keeps it."""
    found: Callable[..., Any] = vars(app).get("AsyncResult") or app.AsyncResult
    return found


def _is_celerys(recipe: Recipe, expires: Any, headers: Any) -> bool:
    """Whether Celery has to make a message.

    It has to for an expiry that is no number of seconds, and for headers that are no dict, or those of every message.
    """
    if expires is not None and not (type(expires) in (int, float) and 0 <= expires <= _MOST_EXPIRES_S):
        return True
    return bool(headers) and (type(headers) is not dict or not recipe.headers.isdisjoint(headers))


def _take_of_celery(options: dict[str, Any]) -> bool:
    """Takes the options that Celery has to serve out of those of a call. Returns whether one of them has a value."""
    found = False
    for name in _OF_CELERY:
        found |= options.pop(name, None) is not None
    return found


def _take_texts(options: dict[str, Any]) -> list[str | None]:
    """Returns the texts of ``IN_OPTIONS`` among the options of a call, and leaves placeholders in their places."""
    texts: list[str | None] = []
    for name, placeholder in IN_OPTIONS.items():
        value = options.get(name)
        is_text = type(value) is str
        texts.append(value if is_text else None)
        if is_text:
            options[name] = placeholder
    return texts


class _Attempts:
    """The attempts to publish for ``Connection.ensure``, of which the first has failed already."""

    __name__ = "publish"

    def __init__(self, publish: Callable[[], None], error: Exception) -> None:
        self._publish = publish
        self._error: Exception | None = error

    def __call__(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
        self._publish()

    def revive(self, channel: object) -> None:
        """Does nothing: each attempt takes the channel that the connection has then."""
