"""Finds and mends the damage that lost keys leave."""

from celery_ext.repair.check import Findings, check

__all__ = ["Findings", "check"]
