"""What is remembered of attempts to publish that have failed."""

from celery_ext.journal.placement import Attempts


def test_an_attempt_may_be_pushed_out_while_it_is_looked_up() -> None:
    """Another thread that remembers many attempts pushes out the oldest: who just looks for that meets no error."""
    attempts, looks = Attempts(), list[str]()

    class Key:
        def __hash__(self) -> int:
            if looks:  # not the first time that it is looked up
                attempts._cutoffs.data.clear()
            looks.append("look")
            return 1

    key = Key()
    attempts.remember([key], 7.0)
    looks.clear()
    assert attempts.cutoff_ms([key]) == 7.0
