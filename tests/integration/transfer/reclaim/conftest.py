"""A store, and transfer workers that give back what its dead consumers held."""

from tests.support.workers.reclaiming import reclaim, store

__all__ = ["reclaim", "store"]
