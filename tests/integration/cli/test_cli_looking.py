"""``delayq list`` and ``delayq show``."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from celery_ext import install
from tests.support.commands.shell import lines, run
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.both_layouts

ODD = "a\x1b[31m\r\nb \u202e'\";-"


def _ids(proj: Proj, *args: str, code: int = 0) -> list[str]:
    return [line["id"] for line in lines(proj.server, "list", *args, code=code)]


@pytest.fixture
def five(proj: Proj) -> Proj:
    """Five tasks in two queues, the n-th due n hours from now."""
    for n in (3, 1, 5, 2, 4):
        queue = "odd" if n % 2 else "even"
        proj.send("record", f"value {n}", countdown=n * 3600, queue=queue, task_id=f"t{n}")
    return proj


def test_list_merges_queues_in_the_order_of_due_times(five: Proj) -> None:
    """All queues are shown by default, or those that are named, each message once and the next due first."""
    assert _ids(five) == ["t1", "t2", "t3", "t4", "t5"]
    assert _ids(five, "odd") == ["t1", "t3", "t5"]
    assert _ids(five, "even", "odd", "even") == ["t1", "t2", "t3", "t4", "t5"]


def test_list_tells_task_due_time_and_arguments(five: Proj) -> None:
    """A line of JSON and a row of text say of a message what it is, where it goes, and when."""
    before = datetime.now(UTC)
    [line, *_] = lines(five.server, "list")
    assert abs(datetime.fromisoformat(line["due"]) - before - timedelta(hours=1)) < timedelta(minutes=1)
    assert 3540 < line["due_in_s"] <= 3600
    assert {name: line[name] for name in ("id", "task", "queue", "priority", "retries", "argsrepr")} == {
        "id": "t1",
        "task": "proj.record",
        "queue": "odd",
        "priority": 0,
        "retries": 0,
        "argsrepr": "('value 1',)",
    }
    head, row, *_ = run(five.server, "list").stdout.splitlines()
    assert head.split() == ["DUE", "TASK", "ID", "QUEUE", "RETRIES", "ARGUMENTS"]
    assert row[:4] == datetime.fromisoformat(line["due"]).astimezone().strftime("%Y")
    assert "(in 59m " in row or "(in 1h)" in row
    assert row.split()[-6:] == ["proj.record", "t1", "odd", "0", "('value", "1',)"]


def test_list_between_two_due_times(five: Proj) -> None:
    """--due-from is inclusive, --due-to is not, and both take ISO 8601 or a duration from now."""
    assert _ids(five, "--due-from", "90m", "--due-to", "3h30m") == ["t2", "t3"]
    due = {line["id"]: line["due"] for line in lines(five.server, "list")}
    assert _ids(five, "--due-from", due["t2"], "--due-to", due["t4"]) == ["t2", "t3"]
    assert _ids(five, "--due-to", "0s") == []


def test_list_ends_at_its_limit_and_says_how_many_more_there_are(five: Proj) -> None:
    """The rest is counted, within the due times asked for; beside JSON the count is on stderr."""
    assert run(five.server, "list", "--limit", "2").stdout.splitlines()[3:] == ["… and 3 more"]
    result = run(five.server, "list", "--limit", "2", "--due-to", "210m", "--json")
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr == "… and 1 more\n"
    assert "more" not in run(five.server, "list", "--limit", "5").stdout
    for n in range(30):
        five.send("record", countdown=7200, queue="many", task_id=f"many-{n}")
    assert len(_ids(five)) == 20
    assert len(_ids(five, "--limit", "0")) == 35


def test_an_empty_broker_is_listed_without_an_error(proj: Proj) -> None:
    """Nothing waits: that is said in text, JSON has no line, and the exit code is 0."""
    assert run(proj.server, "list").stdout == ""
    proj.send("record", countdown=3600, task_id="t")
    run(proj.server, "run-now", "t")
    assert run(proj.server, "list").stdout == "no delayed messages\n"
    assert lines(proj.server, "list") == []


def test_every_command_says_that_a_queue_is_not_known(five: Proj) -> None:
    """A name that is not known is on stderr and exit code 1, as an argument or by -q, whatever the command."""
    for args in (
        ["status"],
        ["list"],
        ["export"],
        ["queues", "purge", "--yes"],
        ["convert", "--to", "hash"],
        ["repair"],
    ):
        for named in (["oddd"], ["-q", "oddd"], ["-q", "odd", "oddd"]):
            result = run(five.server, *args, *named, *(["--dry-run"] if args == ["repair"] else []), code=1)
            assert "queue 'oddd' holds no " in result.stderr, args
    [row] = json.loads(run(five.server, "status", "--json", "-q", "even").stdout)["queues"]
    assert (row["queue"], row["delayed"]) == ("even", 2)
    for n in range(2):
        five.send("record", n, queue="ready")
    assert json.loads(run(five.server, "status", "--json", "ready").stdout)["queues"][0]["ready"] == 2
    assert "Missing argument 'QUEUE...'" in run(five.server, "queues", "purge", "--yes", code=2).stderr
    assert lines(five.server, "repair", "oddd", code=1) == []
    assert [found["queue"] for found in lines(five.server, "repair", "-q", "even")] == ["even"]


def test_control_characters_never_reach_the_terminal(proj: Proj) -> None:
    """Id, queue, arguments and headers are printed with what is not printable escaped; JSON has them as they are."""
    proj.send("record", ODD, countdown=3600, queue=ODD, task_id=ODD, headers={ODD: ODD})
    for args in (["list"], ["show", ODD], ["show", "--raw", ODD], ["status"], ["list", f"{ODD}?"], ["show", f"{ODD}?"]):
        code = int(any(each.endswith("?") for each in args))
        result = run(proj.server, *args, code=code)
        output = result.stdout + result.stderr
        assert not {"\x1b", "\r", "\u202e"} & set(output), args
        assert r"a\x1b[31m" in output or r"a\u001b[31m" in output, args
    [line] = lines(proj.server, "show", ODD)
    assert (line["id"], line["queue"], line["args"], line["headers"][ODD]) == (ODD, ODD, [ODD], ODD)


def test_show_tells_everything_of_a_message(proj: Proj) -> None:
    """Text and JSON have task, due time, arguments, headers and properties; --raw has the bytes of the store."""
    proj.send("record", {"n": 1}, countdown=3600, queue="orders", task_id="t", headers={"tenant": "blue"}, priority=4)
    [line] = lines(proj.server, "show", "t")
    with proj.connection() as connection:
        [stored] = connection.default_channel.store.lookup.get(["orders"], ["t"])["t"]
    raw = run(proj.server, "show", "--raw", "t").stdout.rstrip("\n")
    assert raw.encode() == stored.body
    message = json.loads(raw)
    assert (line["headers"], line["properties"]) == (message["headers"], message["properties"])
    assert (line["args"], line["kwargs"], line["priority"], line["size"]) == ([{"n": 1}], {}, 4, len(raw))
    assert (line["eta"], line["stored_id"], line["delay_chain"]) == (message["headers"]["eta"], "t", None)
    text = run(proj.server, "show", "t").stdout
    for words in ("proj.record", "({'n': 1},)", "blue", "priority   4", f"{len(raw):,} bytes", "orders"):
        assert words in text


def test_show_tells_the_position_in_a_delay_chain(proj: Proj) -> None:
    """A message with a chain says for which step it waits, and which delays come after; so does its row."""
    install(proj.app)
    proj.send("record", countdown=60, task_id="first", delay_chain="4m,10m*2,1h")
    proj.send("record", countdown=120, task_id="third", retries=3, delay_chain="4m,10m*2,1h")
    proj.send("record", countdown=180, task_id="long", retries=1, delay_chain="1s*1000")
    [line] = lines(proj.server, "show", "third")
    assert line["delay_chain"] == {"text": "4m,10m*2,1h", "step": 3, "steps": 4, "next_delays_s": [3600.0]}
    assert "(waits for step 3 of 4; next: 1h)" in run(proj.server, "show", "third").stdout
    assert "(first run, then 4 steps; next: 4m, 10m, 10m, 1h)" in run(proj.server, "show", "first").stdout
    assert "… and 989 more)" in run(proj.server, "show", "long").stdout
    assert [row.split()[-1] for row in run(proj.server, "list").stdout.splitlines()[1:]] == ["0/4", "3/4", "1/1000"]


@pytest.mark.wide
def test_list_shows_no_chain_that_the_message_does_not_have(make_proj: MakeProj) -> None:
    """A first run whose task is declared with a chain counts no steps, which only its worker does."""
    proj = make_proj(include=["chain_tasks"])
    proj.send("notify", countdown=60, task_id="first")
    assert proj.celery("delayq", "list").splitlines()[1].split()[-1] == "0"
    assert "chain" not in proj.celery("delayq", "show", "first").replace("celery", "")


def test_show_finds_what_there_is(five: Proj) -> None:
    """Unknown ids are named on stderr; the exit code is 1 when none was found."""
    result = run(five.server, "show", "-", "--json", stdin="t1\nnope\n\nt2\r\n")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["t1", "t2"]
    assert result.stderr == "nope: not waiting\n"
    assert run(five.server, "show", "nope", code=1).stderr == "nope: not waiting\n"
    assert "either --raw or --json" in run(five.server, "show", "t1", "--raw", "--json", code=2).stderr
