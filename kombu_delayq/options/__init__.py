"""The transport options of kombu-delayq."""

from kombu_delayq.options.parsing import parse
from kombu_delayq.options.table import BACKUPS, NAMES, Options

__all__ = ["BACKUPS", "NAMES", "Options", "parse"]
