from celery_ext.delays.chain import DelayChain
from celery_ext.demo.arrivals import Arrival, Verdict

CHAINED, CANCELLED = 2, 3
#: A chain of two steps as it should go: three tries, each after its step.
TRIES = tuple(Arrival(CHAINED, "a", 5.0, at, retries) for retries, at in enumerate((0.0, 1.1, 3.2)))
ONCE = (Arrival(0, "a", 0.0), Arrival(1, "b", 12.0))


def _verdict(*arrivals: Arrival) -> Verdict:
    return Verdict(frozenset({0, 1}), arrivals, DelayChain.parse("1s,2s"), CHAINED, CANCELLED)


def test_every_task_once_and_not_early_is_good() -> None:
    """A run is good in which every task ran once, not before its time, and the chain went through its steps."""
    verdict = _verdict(*ONCE, *TRIES)
    assert verdict.good
    assert ["chain 1s,2s", "failed 2 times, then succeeded"] in verdict.rows()
    assert ["cancelled", "never ran"] in verdict.rows()


def test_lost_early_and_double_are_each_bad() -> None:
    """A run in which a task is lost, early or double is not good, and is counted as what it is."""
    lost = _verdict(Arrival(0, "a", 1.0), *TRIES)
    early = _verdict(Arrival(0, "a", -0.1), Arrival(1, "a", 1.0), *TRIES)
    double = _verdict(*ONCE, Arrival(1, "b", 1.0), *TRIES)
    assert (lost.lost, lost.early, lost.double, lost.good) == (1, 0, 0, False)
    assert (early.lost, early.early, early.double, early.good) == (0, 1, 0, False)
    assert (double.lost, double.early, double.double, double.good) == (0, 0, 1, False)


def test_a_chain_that_misses_or_repeats_a_step_is_bad() -> None:
    """A chain that stops before its last step, or takes one twice, is not good, and the table says how often it ran."""
    for tries in (TRIES[:2], (*TRIES, TRIES[-1])):
        verdict = _verdict(*ONCE, *tries)
        assert not verdict.retried
        assert not verdict.good
        assert ["chain 1s,2s", f"tried {len(tries)} times, not 3"] in verdict.rows()


def test_a_step_that_does_not_wait_is_early() -> None:
    """A try that follows the one before it sooner than its step says is early, whatever its own eta says."""
    verdict = _verdict(*ONCE, *TRIES[:2], TRIES[2]._replace(at=3.0))
    assert (verdict.retried, verdict.early, verdict.good) == (True, 1, False)


def test_a_cancelled_task_that_ran_is_bad() -> None:
    """A run in which the cancelled task ran is not good, and the table says how often it ran."""
    verdict = _verdict(*ONCE, *TRIES, Arrival(CANCELLED, "a", 1.0))
    assert not verdict.good
    assert ["cancelled", "ran 1 times"] in verdict.rows()
