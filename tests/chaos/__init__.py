"""Chaos: a fleet under random faults, and a ledger that tells what became of each task."""
