"""Writes at the end of a test run whether the tests with the real Redisson ran."""

from typing import Any

import pytest


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Writes one line, from the tests' reports; with pytest-xdist also where none of the tests ran in this process."""
    reports = [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.nodeid.startswith("tests/jvm/")
    ]
    versions = sorted(
        {str(value) for report in reports for name, value in report.user_properties if name == "redisson"}
    )
    reasons = {report.longrepr[2] for report in reports if report.skipped and isinstance(report.longrepr, tuple)}
    if versions:
        terminalreporter.write_line(f"tests/jvm: ran against Redisson {' and '.join(versions)}")
    elif reasons:
        terminalreporter.write_line(f"tests/jvm: {'; '.join(sorted(reasons)).replace('Skipped', 'skipped', 1)}")
