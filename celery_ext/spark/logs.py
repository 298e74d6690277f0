"""What the data source logs, on the driver and in Spark's Python workers."""

import logging
import sys

logger = logging.getLogger("celery_ext.spark")


def log(level: int, text: str) -> None:
    """Logs a line, to stderr where nobody has configured logging, as in Spark's Python workers."""
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    logger.log(level, text)
