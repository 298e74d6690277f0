"""The exception tree."""

import inspect

import pytest

import kombu_delayq
from kombu_delayq import errors

ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]


def test_every_error_has_the_one_root_a_place_and_a_meaning() -> None:
    """Whoever catches DelayqError catches each error; the package offers each, with a sentence of its own."""
    for kind in ALL:
        assert issubclass(kind, errors.DelayqError)
        assert getattr(kombu_delayq, kind.__name__) is kind
        assert kind.__name__ in kombu_delayq.__all__
        assert str(kind.__doc__).strip().endswith(".")
    assert len({kind.__doc__ for kind in ALL}) == len(ALL)


@pytest.mark.parametrize(
    "kind",
    [
        errors.InvalidOptions,
        errors.InvalidBrokerURL,
        errors.InvalidDelay,
        errors.InvalidDelayChain,
        errors.InvalidDelayLevel,
        errors.DelayTooLong,
    ],
)
def test_an_error_about_a_value_is_a_value_error(kind: type[Exception]) -> None:
    """Code that knows nothing of kombu-delayq catches a wrong value as ValueError."""
    assert issubclass(kind, ValueError)


@pytest.mark.parametrize("kind", ALL)
def test_none_is_taken_for_a_lost_connection(kind: type[Exception]) -> None:
    """Kombu tries again after what looks like a lost connection; our errors are final."""
    assert not issubclass(kind, OSError)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("key_prefx", " (did you mean 'key_prefix'?)"),
        ("KEY_PREFIX", " (did you mean 'key_prefix'?)"),
        ("zzz", ""),
        (7, ""),
    ],
)
def test_a_near_name_is_hinted_at(name: object, hint: str) -> None:
    """An unknown name that is like a known one, in any case, comes with the known one."""
    assert errors.did_you_mean(name, {"key_prefix", "other"}) == hint
