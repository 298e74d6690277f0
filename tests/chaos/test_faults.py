"""Which faults are drawn."""

from itertools import islice

from tests.chaos.brokers.single import WEIGHTS
from tests.chaos.faults import drawn, in_turn


def test_a_seed_draws_the_same_faults_again() -> None:
    """Two runs with one seed have the same faults; another seed has others."""
    first, again, other = (list(islice(drawn(seed, 1.5, WEIGHTS), 50)) for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert len({draw.kind for draw in first}) > 5


def test_each_fault_in_turn() -> None:
    """Of a list of faults each comes once, in an order that the seed chooses."""
    kinds = ["kill", "kill", "term", "script flush"]
    found = [draw.kind for draw in in_turn(3, 0.5, kinds)]
    assert sorted(found) == sorted(kinds)
    assert found == [draw.kind for draw in in_turn(3, 0.5, kinds)]
