"""Finds and mends the damage that lost keys leave."""

from celery_ext.repair.check import Findings, check
from celery_ext.repair.store import RepairStore
from celery_ext.repair.strays import Search, find_strays, forget_strays

__all__ = ["Findings", "RepairStore", "Search", "check", "find_strays", "forget_strays"]
