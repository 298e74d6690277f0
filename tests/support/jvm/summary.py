"""Says at the end of a test run whether the tests with the real Redisson ran."""

from typing import Any

import pytest


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line, from what the tests report; with pytest-xdist also where none of them has run in this process."""
    reports = [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.nodeid.startswith("tests/jvm/")
    ]
    versions = sorted({str(value) for each in reports for name, value in each.user_properties if name == "redisson"})
    reasons = {each.longrepr[2] for each in reports if each.skipped and isinstance(each.longrepr, tuple)}
    if versions:
        terminalreporter.write_line(f"tests/jvm: ran against Redisson {' and '.join(versions)}")
    elif reasons:
        terminalreporter.write_line(f"tests/jvm: {'; '.join(sorted(reasons)).replace('Skipped', 'skipped', 1)}")
