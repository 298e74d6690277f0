"""All checks of ``delayq doctor``: its own, and those that features bring."""

from functools import cache

from celery_ext.doctor import app, broker, fleet
from celery_ext.doctor.check import APP, REDIS, WORKERS, Check
from celery_ext.doctor.priorities import priorities
from celery_ext.features import modules_of

_OWN = (
    Check("transport", app.transport, APP),
    Check("options", app.options, APP),  # before the checks that they stop, as priorities
    Check("priorities", priorities, APP),
    Check("broker-url", app.broker_url, APP),
    Check("timeouts", app.timeouts, APP),
    Check("settings", app.settings, APP),
    Check("install", app.install, APP),
    Check("chains", app.chains, APP),
    Check("visibility-timeout", app.visibility_timeout, APP, at_start=True),
    Check("kombu", app.kombu, APP, at_start=True),
    Check("redis-version", broker.version, REDIS),
    Check("lua", broker.lua, REDIS),
    Check("eviction", broker.eviction, REDIS),
    Check("persistence", broker.persistence, REDIS),
    Check("memory", broker.memory, REDIS, at_start=True),
    Check("clock", broker.clock, REDIS, at_start=True),
    Check("leader", broker.leader, REDIS),
    Check("consumers", broker.consumers, REDIS, asks=True),
    Check("paused", broker.paused, REDIS),
    Check("queues", broker.unreadable, REDIS),
    Check("in-hand", broker.in_hand, REDIS),
    Check("deaths", broker.deaths, REDIS),
    Check("prefixes", broker.prefixes, REDIS),
    Check("layout", broker.layout, REDIS),
    Check("workers", fleet.workers, WORKERS, asks=True),
    Check("fleet", fleet.fleet, WORKERS, asks=True),
    Check("same-options", fleet.same_options, WORKERS, asks=True),
    Check("worker-versions", fleet.versions, WORKERS, asks=True),
    Check("worker-clocks", fleet.clocks, WORKERS, asks=True),
    Check("rates", fleet.rates, WORKERS, asks=True),
    Check("long-tasks", fleet.long_tasks, WORKERS, asks=True),
)


@cache
def all_checks() -> tuple[Check, ...]:
    """Returns all checks, in the order in which they are made: those of settings first, those of workers last.

    A feature brings its own: ``CHECKS`` in the module ``checks`` of its folder.
    """
    brought = [check for module in modules_of("checks", but="doctor") for check in module.CHECKS]
    return tuple(sorted((*_OWN, *brought), key=lambda check: (APP, REDIS, WORKERS).index(check.needs)))
