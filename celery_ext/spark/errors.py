"""What can be wrong with a Spark job. Spark shows these errors on the driver."""

from kombu_delayq.errors import DelayqError


class InvalidSparkOption(DelayqError, ValueError):
    """An option of the data source is missing, unknown, or has a wrong value."""


class InvalidColumns(DelayqError, ValueError):
    """The columns of a DataFrame make no tasks."""


class BadRow(DelayqError, ValueError):
    """A row makes no task."""


class BrokerUnavailable(DelayqError):
    """The broker does not answer, or has taken no messages for as long as ``write_timeout``."""


class StragglerRefused(DelayqError):
    """A Spark task tried to write for a job that has ended, or that a later run has taken over."""


class JobCommittedBefore(DelayqError):
    """A job was committed by an earlier run, and the option ``on_committed`` is not ``skip``."""


class TableUnavailable(DelayqError):
    """The folder of a table is missing, or has no folders of hours; or rows that were sent could not be removed."""
