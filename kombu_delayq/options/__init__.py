"""The transport options of kombu-delayq."""

from kombu_delayq.options.parsing import parse
from kombu_delayq.options.table import LAYOUTS, NAMES, Options

__all__ = ["LAYOUTS", "NAMES", "Options", "parse"]
