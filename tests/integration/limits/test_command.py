"""``delayq limits`` lists limits and keys, and changes them."""

from collections.abc import Iterator

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.limits import Limit
from tests.support.commands.shell import Audit, lines, run
from tests.support.limits.keyed import QUEUE, Keyed, keyed


@pytest.fixture
def shop(redis_server: PrivateRedis) -> Iterator[Keyed]:
    with keyed(redis_server) as made:
        yield made


def test_limits_and_the_longest_keys_are_listed(redis_server: PrivateRedis, shop: Keyed) -> None:
    """Each key has what waits and runs of it and what holds for it; limits say who has set them."""
    shop.declare()
    shop.send("account:7", "account:7", "account:7", "account:8", "account:8", "stripe", "other:1")
    assert len(shop.fetch(2)) == 2
    run(redis_server, "limits", "set", "account:7", "--running", "3")
    found = lines(redis_server, "limits", "list")
    limits = {each["limit"]["name"]: each["limit"] for each in found if "limit" in each}
    assert list(limits) == ["account", "account:7", "stripe"]
    assert limits["account:7"]["declared"] is None
    assert limits["account:7"]["set"]["running"] == limits["account:7"]["holds"]["running"] == 3
    assert limits["stripe"]["holds"] == {"running": 10, "rate": 50, "burst": 100, "weight": None}
    keys = [each["key"] for each in found if "key" in each]
    assert keys[0]["key"] == "account:7"
    assert (keys[0]["waiting"], keys[0]["running"], keys[0]["is_set"]) == (2, 1, True)
    assert {each["key"]: each["limit"] and each["limit"]["running"] for each in keys} == {
        "account:7": 3,
        "account:8": 1,
        "stripe": 10,
        "other:1": None,
    }
    assert sum(each["waiting"] + each["running"] for each in keys) == 7
    text = run(redis_server, "limits", "list", "--limit", "account:8").stdout
    assert "account:8" in text
    assert "account:7" not in text.partition("QUEUE")[2]
    assert "nobody declares it" in run(redis_server, "limits", "list").stdout
    assert "… of 4 keys" in run(redis_server, "limits", "list", "--most", "1").stdout
    assert [each for each in lines(redis_server, "limits", "list", "-q", "mails") if "key" in each] == []


def test_a_limit_that_is_set_holds_until_a_reset(redis_server: PrivateRedis, shop: Keyed, audit: Audit) -> None:
    """What is set holds at the next fetch, for a limit and for a key; the audit has a line for each change."""
    shop.declare()
    shop.send(*["account:7"] * 6)
    assert len(shop.fetch(6)) == 1
    said = run(redis_server, "limits", "set", "account", "--running", "2", "--weight", "3").stdout
    assert said == "account: set, 2 at once, weight 3\n"
    assert len(shop.fetch(6)) == 1
    assert run(redis_server, "limits", "pause", "account:7").stdout == "account:7: paused, paused, weight 3\n"
    assert shop.fetch(6) == []
    assert "unchanged" in run(redis_server, "limits", "pause", "account:7").stdout
    run(redis_server, "limits", "reset", "account:7")
    run(redis_server, "limits", "set", "account:7", "--running", "4")
    assert len(shop.fetch(6)) == 2
    for name in ("account", "account:7"):
        run(redis_server, "limits", "reset", name)
    assert shop.limits.limits(QUEUE).set == {}
    assert shop.limits.limits(QUEUE).of("account:7") == Limit(running=1)
    done = [(line["action"], line["what"]["limit"]) for line in reversed(audit())]
    assert done == [
        ("set_limit", "account"),
        ("pause_limit", "account:7"),
        ("reset_limit", "account:7"),
        ("set_limit", "account:7"),
        ("reset_limit", "account"),
        ("reset_limit", "account:7"),
    ]


def test_errors_say_what_to_do(redis_server: PrivateRedis, shop: Keyed) -> None:
    """A broker without limits, a name that is like another, and wrong values each say what is wrong."""
    assert "transport option limits" in run(redis_server, "limits", "list").stdout
    assert "transport option limits" in run(redis_server, "limits", "pause", "account:7", code=1).stderr
    shop.declare()
    for args in (["pause", "acount:7"], ["reset", "acount"], ["list", "--limit", "acount"]):
        assert "did you mean 'account'?" in run(redis_server, "limits", *args, code=1).stderr
    assert "a name has" in run(redis_server, "limits", "pause", "a b:7", code=1).stderr
    assert "give --running" in run(redis_server, "limits", "set", "account", code=2).stderr.lower()
    for wrong in (["--running", "-1"], ["--rate", "0"], ["--rate", "a"], ["--rate", "1,2,3"], ["--weight", "0"]):
        assert f"{wrong[0][2:]}=" in run(redis_server, "limits", "set", "account", *wrong, code=2).stderr
    assert run(redis_server, "limits", "reset", "account").stdout == "account: unchanged, 1 at once\n"
