from celery_ext.demo.journal import Arrival, Verdict


def _verdict(*arrivals: Arrival) -> Verdict:
    return Verdict(frozenset({0, 1}), arrivals)


def test_every_task_once_and_not_early_is_good() -> None:
    """A run in which every task ran once, at or after its time, is good."""
    assert _verdict(Arrival(0, "a", 0.0), Arrival(1, "b", 12.0)).good


def test_lost_early_and_double_are_each_bad() -> None:
    """A run in which a task is lost, early or double is not good, and is counted as what it is."""
    lost = _verdict(Arrival(0, "a", 1.0))
    early = _verdict(Arrival(0, "a", -0.1), Arrival(1, "a", 1.0))
    double = _verdict(Arrival(0, "a", 1.0), Arrival(1, "a", 1.0), Arrival(1, "b", 1.0))
    assert (lost.lost, lost.early, lost.double, lost.good) == (1, 0, 0, False)
    assert (early.lost, early.early, early.double, early.good) == (0, 1, 0, False)
    assert (double.lost, double.early, double.double, double.good) == (0, 0, 1, False)
