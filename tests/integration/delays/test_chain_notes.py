"""How Redis learns that delay chains are in use, and what it keeps of cancelled ids where they are not."""

from math import inf

import pytest

from celery_ext import Call, cancel, install, send_many
from kombu_delayq.store.chains import NOTES_WITHOUT_CHAINS
from tests.support.commands.shell import lines, run
from tests.support.conditions import stays, until
from tests.support.workers.harness import MakeProj, Proj

pytestmark = [pytest.mark.wide, pytest.mark.both_layouts]

CHAINS, CANCELLED = "{delayq}:chains", "{delayq}:cancelled"


def knows_of_chains(proj: Proj) -> bool:
    return bool(proj.server.client().zscore(CHAINS, "") == inf)


def test_a_running_step_is_told_from_an_unknown_id(make_proj: MakeProj) -> None:
    """`delayq cancel` of a chain whose step runs says that it has ended, with exit code 0, and that is so."""
    proj = make_proj(include=["chain_tasks"])
    proj.worker(concurrency=1)
    sent = proj.send("gated")
    proj.journal.rpush(f"fail {sent.id}", 1)
    with proj.connection() as connection:  # a queue is registered right after its first message has come
        queues = connection.default_channel.store.queues
        until(lambda: (queues.size("celery"), queues.names()) == (1, ["celery"]), what="its next step can be found")
    run(proj.server, "run-now", sent.id)
    proj.await_runs(2)
    result = run(proj.server, "cancel", "--yes", sent.id, "unknown")
    assert result.stdout == f"{sent.id}: not waiting, but the delay chain takes no further step\n"
    assert result.stderr == "unknown: not waiting\n"
    assert lines(proj.server, "cancel", "--yes", sent.id) == [{"id": sent.id, "outcome": "chain_ended"}]
    assert run(proj.server, "cancel", "--yes", "-", stdin=f"{sent.id}\nunknown\n").stdout == (
        "1 not waiting, but the delay chain takes no further step, 1 not waiting\n"
    )
    assert cancel(proj.app, [sent.id, "unknown"]) == {sent.id: "chain_ended", "unknown": "not_delayed"}
    proj.journal.rpush(f"fail {sent.id}", 1)
    until(lambda: sent.state == "REVOKED")
    assert cancel(proj.app, sent.id) == "not_delayed"


def test_a_worker_without_chains_tells_of_none(make_proj: MakeProj) -> None:
    """Where no task has a chain, revokes of ids that never waited leave a bounded number of notes."""
    proj = make_proj()
    proj.worker(concurrency=1)
    proj.send("record")
    proj.await_runs(1)
    nodes = proj.await_answers()
    ids = [f"id {n}" for n in range(5 * NOTES_WITHOUT_CHAINS)]
    proj.app.control.revoke(ids, reply=True, destination=nodes, timeout=60)
    client = proj.server.client()
    until(lambda: client.zscore(CANCELLED, ids[-1]) is not None, 90, "all are worked on")
    assert client.zcard(CANCELLED) == NOTES_WITHOUT_CHAINS
    assert not client.exists(CHAINS)


@pytest.mark.parametrize("how", ["at once", "later", "many"])
def test_a_publisher_tells_of_the_chain_of_a_call(make_proj: MakeProj, how: str) -> None:
    """A call that brings a chain is told of before its message can run; others are not."""
    proj = make_proj()
    install(proj.app)
    proj.send("record", countdown=600)
    send_many(proj.app, "proj.record", [Call(countdown=600)])
    assert not knows_of_chains(proj)
    if how == "many":
        send_many(proj.app, "proj.record", [Call()], delay_chain="1h")
    else:
        proj.send("record", delay_chain="1h", countdown=0 if how == "at once" else 600)
    assert knows_of_chains(proj)


def test_who_cancels_tells_of_the_chains_of_its_app(make_proj: MakeProj) -> None:
    """Where no worker has run yet, an app whose tasks have chains lets each of its notes be kept."""
    proj = make_proj()
    install(proj.app)
    cancel(proj.app, "unknown")
    assert not knows_of_chains(proj)
    proj.app.task(stays, name="chained", delay_chain="1h", shared=False)  # any function will do
    cancel(proj.app, "unknown")
    assert knows_of_chains(proj)
