"""All goes on where the token of the app ends every few seconds, and Redis then closes all its connections."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.servers.cluster import PrivateCluster
from tests.support.servers.sentinels import MASTER_NAME, Sentinels
from tests.support.servers.tokens import PROVIDER, Tokens
from tests.support.workers.harness import MakeProj, Proj

OPTIONS = {"credential_provider": PROVIDER}
#: How often the token has to end while tasks are published and run.
TURNS = 5

Rotate = Callable[..., Tokens]


@pytest.fixture
def rotate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rotate]:
    """Begins to change the token of some servers."""
    file = tmp_path / "token"
    monkeypatch.setenv("TOKEN_FILE", str(file))
    with ExitStack() as running:
        yield lambda *servers: running.enter_context(Tokens(servers, file))


def goes_on(proj: Proj, tokens: Tokens, queues: tuple[str, ...] = ("celery",)) -> None:
    """Publishes tasks until the token has ended often, and lets each run, once and not too early or late."""
    proj.await_answers()
    with tokens.closing:
        sent = {proj.send("late_acked", 2.5 * tokens.every_s, queue=queues[0]).id: time.time()}
    until_turn = tokens.turns + TURNS
    while tokens.turns < until_turn:
        for number, queue in enumerate(queues):
            countdown = [0, 0.5, 3][(len(sent) + number) % 3]  # s
            with tokens.closing:
                sent[proj.send("record", countdown, countdown=countdown, queue=queue).id] = time.time() + countdown
        time.sleep(0.02 * len(queues) ** 2)  # s
    proj.await_runs(len(sent), 60)
    runs = proj.runs()
    times = Counter(run["id"] for run in runs)
    assert [(run["id"], run["redelivered"]) for run in runs if times[run["id"]] > 1] == []
    assert {run["id"] for run in runs} == sent.keys()
    late_s = [run["at"] - sent[run["id"]] for run in runs]
    assert min(late_s) > -0.1
    assert max(late_s) < 5, sorted(late_s)[-10:]
    assert not any(run["redelivered"] or run["deaths"] for run in runs)
    proj.await_answers()
    for worker in proj.workers:
        assert "connection to broker lost" not in worker.log.lower(), worker.log[-8000:]


@pytest.mark.journey
def test_a_worker_and_a_publisher_go_on(own_server: PrivateRedis, rotate: Rotate, make_proj: MakeProj) -> None:
    """Tasks run once each, delayed ones in time, and the worker answers."""
    tokens = rotate(redis.Redis(port=own_server.port))
    proj = make_proj(own_server, broker_transport_options=OPTIONS)
    proj.worker()
    goes_on(proj, tokens)
    assert tokens.closed > TURNS


def test_behind_sentinels(sentinels: Sentinels, rotate: Rotate, make_proj: MakeProj) -> None:
    """The same where Sentinels name the primary: their own logins are apart, in ``sentinel_kwargs``."""
    tokens = rotate(*(redis.Redis(port=server.port) for server in (sentinels.master, *sentinels.replicas)))
    options = {**OPTIONS, "master_name": MASTER_NAME}
    proj = make_proj(sentinels.master, broker_url=sentinels.urls("delayq+sentinel"), broker_transport_options=options)
    proj.worker()
    goes_on(proj, tokens)


def test_in_a_cluster(own_cluster: PrivateCluster, rotate: Rotate, make_proj: MakeProj) -> None:
    """The same with the nodes of a cluster, all of which close their connections."""
    tokens = rotate(*(redis.Redis(port=node.port) for node in own_cluster.nodes))
    proj = make_proj(broker_url=own_cluster.url, broker_transport_options=OPTIONS)
    proj.worker("-Q", "q0,q1,q2", pool="threads")
    goes_on(proj, tokens, ("q0", "q1", "q2"))
