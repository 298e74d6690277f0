"""Publishes tasks by templates: many calls at once, single calls faster, and from asyncio."""

from typing import TYPE_CHECKING

from celery_ext.publish.fast import FastPublisher
from celery_ext.publish.recipe import Call, Recipe, Target, has_receivers, is_routed_by_code, waits_in_redis
from celery_ext.publish.shards import ShardRouter
from celery_ext.publish.template import EXPIRES, PLACEHOLDERS, RESULT_OF_UNKNOWN, Gaps, NoTemplate, Template, catching
from celery_ext.publish.write import body_json, headers_json, saferepr, texts_of
from kombu_delayq.later import later

if TYPE_CHECKING:
    from celery_ext.publish.asynchronous import aclose, asend, asend_many
    from celery_ext.publish.many import ManyMessages, send_many

__all__ = [
    "EXPIRES",
    "PLACEHOLDERS",
    "RESULT_OF_UNKNOWN",
    "Call",
    "FastPublisher",
    "Gaps",
    "ManyMessages",
    "NoTemplate",
    "Recipe",
    "ShardRouter",
    "Target",
    "Template",
    "aclose",
    "asend",
    "asend_many",
    "body_json",
    "catching",
    "has_receivers",
    "headers_json",
    "is_routed_by_code",
    "saferepr",
    "send_many",
    "texts_of",
    "waits_in_redis",
]

#: What a worker's start, and the shell, do without.
__getattr__ = later(
    __name__,
    {
        "ManyMessages": "many",
        "aclose": "asynchronous",
        "asend": "asynchronous",
        "asend_many": "asynchronous",
        "send_many": "many",
    },
)
