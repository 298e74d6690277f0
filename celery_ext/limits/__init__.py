"""Limits by key: what a message says of its limit, written in one form wherever it is published."""

from celery_ext.limits.key import LIMIT_HEADER, LimitDeclaration, add_key, declared_limit, read_key

__all__ = ["LIMIT_HEADER", "LimitDeclaration", "add_key", "declared_limit", "read_key"]
