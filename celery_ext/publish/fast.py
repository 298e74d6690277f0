"""Sends single calls by templates, where a template says the same as Celery, and leaves all others to Celery."""

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from celery import Celery
from celery.app import amqp
from celery.backends.base import Backend
from kombu.common import maybe_declare
from kombu.exceptions import LimitExceeded
from kombu.log import get_logger

from celery_ext.delays import LEFT_TO_CELERY
from celery_ext.limits import add_key
from celery_ext.publish.recipe import IN_OPTIONS, Recipe, applies_as_celery, has_receivers, recipe_of
from celery_ext.publish.shards import ShardRouter
from celery_ext.publish.template import NoTemplate
from celery_ext.publish.watch import Watch
from celery_ext.publish.write import Own, Writer, Written, new_task_id
from kombu_delayq.channel import DelayedChannel

if TYPE_CHECKING:
    from kombu_delayq.store import Offer

logger = get_logger(__name__)

#: So many tasks and sets of options are known. Then all are forgotten: they may differ with every call.
_MOST_RECIPES = 1000
#: Options of calls that Celery has to send.
_OF_CELERY = ("producer", "publisher", "connection", "router", "link", "link_error", "group_id", "chord", "chain")
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
        timeout_s: How long to wait for a connection; Celery before 5.6 waits without an end.
    """

    def __init__(self, app: Celery) -> None:
        super().__init__(app)
        self.recipes: dict[Hashable, Writer | str | None] = {}
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
        result = self._send(noted, task.name, args, kwargs, given, task.AsyncResult, task)
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
        make_result: Callable[[str], Any],
        task: Any,
    ) -> Any:
        """Sends a call, as ``send`` does, by the recipes of the app as noted, and takes its own out of the options.

        As keyword arguments, Python would compare each of the options with the names of all parameters.
        """
        if _take_of_celery(options) or _sends_callback() or has_receivers(name):
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
        recipe = writer.recipe
        app = self._app
        parent = app.current_worker_task
        if parent and not (root_id and parent_id):
            root_id = root_id or parent.request.root_id or parent.request.id
            parent_id = parent_id or parent.request.id
        identity = task_id or new_task_id()
        own = Own(headers, root_id, parent_id, reply_to, *shown)
        try:
            if _is_celerys(recipe, expires if is_expiring else None, headers):
                return None
            message = writer.write(
                args,
                kwargs,
                identity,
                is_new=not task_id,
                countdown=countdown,
                eta=eta,
                expires=expires if is_expiring else None,
                own=own,
            )
        except Exception as error:  # Celery makes it, or meets the same fault and raises its own error
            logger.info("Celery makes a message of task %s: ours fails with %s", name, type(error).__name__)
            return None
        try:
            self._publish(noted, recipe, message, own.chain_id)
        except LeftToCelery:
            return None
        result = make_result(identity)
        result.ignored = recipe.ignore_result
        if add_to_parent and parent:
            parent.add_trail(result)
        return result

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
            found = recipes[key] = self._made(name, options, expires, headers, more)
            return found if isinstance(found, Writer) else None
        return None

    def _made(
        self, name: str, options: Mapping[str, Any], expires: bool | None, headers: bool, more: Mapping[str, Any]
    ) -> Writer | str:
        try:
            return Writer(self._app, recipe_of(self._app, name, options, expires, headers, **more))
        except NoTemplate as reason:
            logger.info("Celery makes messages of task %s: %s", name, reason)
            return str(reason)
        except Exception as error:  # Celery makes it, or meets the same fault and raises its own error
            logger.info("Celery makes messages of task %s: ours fails with %s", name, type(error).__name__)
            return f"ours fails with {type(error).__name__}"

    def _publish(self, noted: _Noted, recipe: Recipe, message: Written, chain_id: str | None) -> None:
        """Publishes a message, and tries again as Celery does. Source: kombu.messaging.Producer.publish."""
        policy = recipe.retry_policy
        # The connections of Celery's producers. A producer itself would do nothing here.
        try:
            connection = noted.amqp.producer_pool.connections.acquire(block=True, timeout=noted.timeout_s)
        except LimitExceeded:
            raise LeftToCelery from None  # which raises its own error
        try:
            if not recipe.ignore_result:
                self._expect_result(connection, message.offer)
            if policy is not None:
                connection.transport_options.update(policy)
            try:
                self._put(connection, recipe, message.offer, chain_id)
            except LeftToCelery:
                raise
            except Exception as error:
                if policy is None:
                    raise
                attempts = _Attempts(lambda: self._put(connection, recipe, message.again(), chain_id), error)
                connection.ensure(attempts, attempts, **policy)()
        except LeftToCelery:
            raise
        except Exception:
            with connection._reraise_as_library_errors():
                raise
        finally:
            connection.release()

    def _expect_result(self, connection: Any, offer: "Offer") -> None:
        backend = self._app.backend
        if type(backend).on_task_call is not Backend.on_task_call:  # which does nothing
            backend.on_task_call(self._app.amqp.Producer(connection, auto_declare=False), str(offer.id))

    def _put(self, connection: Any, recipe: Recipe, offer: "Offer", chain_id: str | None) -> None:
        channel = connection.default_channel
        if not isinstance(channel, DelayedChannel):
            raise LeftToCelery
        for queue in recipe.declare:
            if not (queue.can_cache_declaration and hash(queue) in connection.declared_entities):
                policy = recipe.retry_policy
                maybe_declare(queue, channel, retry=policy is not None, **(policy or {}))
        channel.put_one(recipe.template.queue, offer, chain_id, in_chain=recipe.in_chain)


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
