"""What is wrong with a Spark job, in words. Spark shows them as errors of the driver."""

from kombu_delayq.errors import DelayqError


class InvalidSparkOption(DelayqError, ValueError):
    """An option of the data source is missing, unknown, or has a value that it does not take."""


class InvalidColumns(DelayqError, ValueError):
    """The columns of a DataFrame do not make tasks."""


class BadRow(DelayqError, ValueError):
    """A row does not make a task."""


class BrokerUnavailable(DelayqError):
    """The broker does not answer, or takes no messages, for longer than ``write_timeout``."""


class StragglerRefused(DelayqError):
    """A task of a job that has ended, or that a later run has taken over, wanted to write."""
