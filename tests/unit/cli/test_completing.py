import logging
import os
import sys
from threading import Event

import pytest

from celery_ext.cli.options import offer, within


def test_what_fits_is_offered_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    """Only printable names that begin as typed; what an app prints or logs meanwhile goes nowhere, as Celery logs."""
    logger = logging.getLogger("of.an.app")
    logger.addHandler(handler := logging.StreamHandler(sys.__stderr__))

    def find() -> list[str]:
        print("an app starts")
        print("with a warning", file=sys.stderr)
        logger.error("the broker is away")
        return ["orders", "other", "or\x1bd"]

    try:
        assert [item.value for item in offer(find, "or")] == ["orders"]
        assert tuple(capfd.readouterr()) == ("", "")
        logger.error("once more")
        assert capfd.readouterr().err == "once more\n"
    finally:
        logger.removeHandler(handler)


def test_an_error_offers_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """The command itself will say what is wrong."""
    assert offer(lambda: [os.environ["NO_SUCH_VARIABLE"]], "") == []
    assert tuple(capfd.readouterr()) == ("", "")


def test_a_search_that_takes_too_long_or_fails_finds_nothing() -> None:
    """The shell waits no longer than the limit, whatever the search waits for."""
    answer = Event()
    try:
        assert within(0.05, lambda: ["orders"] if answer.wait(60) else []) == []
    finally:
        answer.set()
    assert within(60, lambda: ["orders"]) == ["orders"]
    assert within(60, lambda: [os.environ["NO_SUCH_VARIABLE"]]) == []
