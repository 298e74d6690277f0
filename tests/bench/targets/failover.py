"""How late messages are when the transfer workers that lead, or stand by, stop, are killed or hang."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from subprocess import Popen
from threading import Thread
from time import sleep, time
from typing import NamedTuple

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.bench.targets.report import Figure
from tests.bench.targets.transfer import QUEUE, make_store
from tests.support.conditions import until
from tests.support.workers.standalone import lease_holder, start_standalone

#: A leader, two standbys, and one that waits.
FLEET, RANKS = 4, (1, 2, 3)
#: A message is due so often and for so long, the fault happens so long after the first one, in s.
EVERY_S, FAULT_S = 0.01, 1.0


class Fault(NamedTuple):
    """What happens to the transfer workers of some ranks, and how late messages may be then, in s."""

    what: str
    signal: signal.Signals
    ranks: tuple[int, ...]
    most_s: float


FAULTS = (
    Fault("the leader stops", signal.SIGTERM, (1,), 1.15),
    Fault("the leader is killed", signal.SIGKILL, (1,), 0.15),
    Fault("the leader and the first standby are killed", signal.SIGKILL, (1, 2), 0.2),
    Fault("the leader hangs", signal.SIGSTOP, (1,), 0.4),
    Fault("the leader and both standbys are killed", signal.SIGKILL, RANKS, 12.0),
)


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Lets messages come due 100 a second, and each fault happen some times in turn."""
    rounds = 3 if quick else 10
    with _fleet(server) as processes:
        for fault in FAULTS:
            late_s = [_latest_s(server, processes, fault) for _ in range(rounds)]
            note = f"{rounds} times, the latest of 100 messages a second, by the clock of the machine"
            yield Figure(f"late when {fault.what}, median", median(late_s), "s", note=note)
            yield Figure(f"late when {fault.what}, longest", max(late_s), "s", fault.most_s)


@contextmanager
def _fleet(server: PrivateRedis) -> Iterator[list["Popen[bytes]"]]:
    processes: list[Popen[bytes]] = []
    try:
        yield processes
    finally:
        _end(processes)


def _end(processes: Sequence["Popen[bytes]"]) -> None:
    for process in processes:
        process.kill()
        process.wait(10)


def _complete(server: PrivateRedis, processes: list["Popen[bytes]"]) -> dict[int, "Popen[bytes]"]:
    """Starts what is missing of the fleet. Returns the holders of the leases, once all are held by living ones."""
    processes[:] = [process for process in processes if process.poll() is None]
    processes += [start_standalone(server) for _ in range(FLEET - len(processes))]

    def holders() -> dict[int, Popen[bytes]]:
        by_pid = {process.pid: process for process in processes}
        found = {rank: by_pid.get(lease_holder(server, rank) or 0) for rank in RANKS}
        return {rank: process for rank, process in found.items() if process}

    until(lambda: len(holders()) == len(RANKS), 60, "all leases are held")
    return holders()


def _latest_s(server: PrivateRedis, processes: list["Popen[bytes]"], fault: Fault) -> float:
    """Returns how late the latest message reached its queue around a fault, in s."""
    holders = _complete(server, processes)
    store = make_store(server.client(), "hash")
    seconds = FAULT_S + fault.most_s + 1
    due = [time() + 0.5 + EVERY_S * n for n in range(round(seconds / EVERY_S))]
    late_s: list[float] = []
    reader = Thread(target=_read, args=(server, len(due), late_s), daemon=True)
    reader.start()
    _offer(store, due)
    sleep(max(0.0, due[0] + FAULT_S - time()))
    doomed = [holders[rank] for rank in fault.ranks]
    for process in doomed:
        process.send_signal(fault.signal)
    reader.join(seconds + 60)
    if len(late_s) < len(due):
        raise RuntimeError(f"{len(due) - len(late_s)} of {len(due)} messages did not arrive when {fault.what}")
    _end(doomed)
    store.close()
    return max(late_s)


def _offer(store: DelayStore, due: Sequence[float]) -> None:
    store.delivery.offer(QUEUE, *[Offer(repr(at), repr(at * 1000), 0, repr(at)) for at in due])
    store.queues.know(QUEUE)


def _read(server: PrivateRedis, count: int, late_s: list[float]) -> None:
    """Takes each message as it arrives, whose text is its due time."""
    with server.client() as client:
        while len(late_s) < count:
            taken = client.brpop([QUEUE], timeout=60)
            if taken is None:
                return
            late_s.append(time() - float(taken[1]))
