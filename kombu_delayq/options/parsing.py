"""Checks the transport options that a user gives."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from kombu_delayq.errors import InvalidOptions, did_you_mean, nearest
from kombu_delayq.options.checks import contradiction
from kombu_delayq.options.table import NAMES, Options

#: Transport options that kombu and Celery read although kombu's channels do not list them.
_READ_ELSEWHERE = frozenset(
    (
        *("polling_interval", "reauth_check_interval", "retry", "retry_on_error", "max_retries", "interval_start"),
        *("interval_step", "interval_max", "connect_retries_timeout", "errback", "callback"),
    )
)


def parse(given: Mapping[str, Any], of_kombu: Collection[str]) -> tuple[Options, str]:
    """Checks transport options.

    Args:
        given: ``broker_transport_options``.
        of_kombu: Names that the kombu channel in use reads.

    Returns:
        The options, and a warning about names that neither kombu nor we read, empty if there are none. Stock kombu
        ignores such names silently, and others may read them, such as redbeat. So they alone do not stop an app.

    Raises:
        InvalidOptions: An option of ours has a wrong value, or a name looks like a misspelled one of ours. The error
            lists all of them.
    """
    known = NAMES | set(of_kombu) | _READ_ELSEWHERE
    misspelled: list[str] = []
    wrong: list[str] = []
    unread: list[str] = []
    values: dict[str, Any] = {}
    for name in given:
        if name not in known:
            is_ours = nearest(name, known) in NAMES
            (misspelled if is_ours else unread).append(f"{name!r}{did_you_mean(name, known)}")
    for field in dataclasses.fields(Options):
        if field.name in given:
            try:
                values[field.name] = field.metadata["check"](given[field.name])
            except ValueError as reason:
                wrong.append(f"{field.name}={given[field.name]!r} {reason}")
    if not (misspelled or wrong) and (clash := contradiction(values.get("overdue", "run"), values.get("max_lateness"))):
        wrong.append(clash)
    if misspelled:
        raise InvalidOptions(
            f"transport options that kombu-delayq does not take: {'; '.join(misspelled + wrong + unread)}. "
            f"Its own are: {', '.join(sorted(NAMES))}"
        )
    if wrong:
        raise InvalidOptions(f"the transport option {'; '.join(wrong)}")
    return Options(**values), (
        f"transport options that neither kombu nor kombu-delayq reads: {', '.join(unread)}" if unread else ""
    )
