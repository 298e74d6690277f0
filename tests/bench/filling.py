"""Enqueues a backlog while nothing moves it. All of it is overdue a little later."""

from collections.abc import Iterator, Mapping
from time import sleep, time

from tests.bench.contender import Client, Contender, Failed, Stage
from tests.bench.results import Gap, Sample

#: Tasks enqueued before the measured ones: the first open connections, the others show the rate to expect.
WARM = (20, 200)
#: How long enqueueing these tasks may take, in s.
WARM_S = 5.0
#: A backlog that would take one producer longer, in s, is enqueued by two, and its rate is not measured.
ALONE_S = 20.0
#: Least ratio of the rate of two producers to that of one.
TWO = 1.4
#: Tasks of one command. They become due only after SPARE times the expected time of the command, and SPARE_S s more.
PART, SPARE_S, SPARE = 10_000, 2.5, 1.6
#: The least time within which the tasks of a part come due, at random, in s.
WITHIN_S = 2.0
#: Reason of a gap for a number that only some servers count.
NOT_TOLD = "its server does not tell"


class Filling:
    """A backlog of a contender.

    Args:
        stage: Stage of the contender.
        size: Number of tasks.
        both: Whether half of the tasks are enqueued one at a time, half in bulk; else all in bulk, if there is a way.

    Attributes:
        count: Tasks that have been enqueued.
        last_due: When all are overdue, in s since the epoch.
    """

    def __init__(self, stage: Stage, size: int, *, both: bool) -> None:
        self.count = 0
        self.last_due = time() + WARM_S
        self._stage, self._size = stage, size
        self._name = stage.contender.name
        self._rates = self._warmed(stage.contender)
        self._parts = (
            dict.fromkeys(self._rates, size // 2) if both and True in self._rates else {max(self._rates): size}
        )
        self._clients = [stage.client]
        if not both and self.expected_s > ALONE_S:
            self._clients.append(stage.another_client())

    @property
    def expected_s(self) -> float:
        """Expected time to enqueue all tasks, in s."""
        alone_s = sum(count / self._rates[bulk] for bulk, count in self._parts.items())
        return alone_s / (1 if len(self._clients) == 1 else TWO)

    def fill(self) -> Iterator[Sample | Gap]:
        """Enqueues all tasks."""
        server = self._stage.server
        before, cpu_s = server.kept_bytes(), server.cpu_s()
        # Due times are random over the whole time of the enqueueing.
        self.last_due = max(self.last_due, time() + self.expected_s + SPARE_S + WITHIN_S)
        for bulk, count in self._parts.items():
            yield from self._filled(bulk, count)
        yield Sample("offer_cpu", self._name, self._size, (server.cpu_s() - cpu_s) / self._size * 1e6)
        yield Sample("kept", self._name, self._size, (server.kept_bytes() - before) / self._size)

    def await_due(self) -> None:
        """Returns when all are overdue."""
        sleep(max(0.0, self.last_due - time()))

    def _warmed(self, contender: Contender) -> Mapping[bool, float]:
        """Returns how many tasks a second it enqueues, one at a time and in bulk."""
        self._stage.client.ask("enqueue", count=0, first=0, last=0, bulk=False)  # its start may take long
        rates = {}
        for way in contender.ways:
            for count in WARM:
                due = time() + WARM_S
                done = self._stage.client.ask("enqueue", count=count, first=due, last=due, bulk=way == "bulk")
                check_ahead(done)
                self.count, self.last_due = self.count + count, due
            rates[way == "bulk"] = count / done["seconds"]
        return rates

    def _filled(self, bulk: bool, count: int) -> Iterator[Sample | Gap]:
        row, reads = "enqueue_bulk" if bulk else "enqueue_one", self._stage.server.reads()
        took_s = cpu_s = 0.0
        for start in range(0, count, PART):
            for done in self._part(bulk, min(PART, count - start)):
                took_s, cpu_s = took_s + done["seconds"], cpu_s + done["cpu_s"]
        after = self._stage.server.reads()
        if len(self._clients) > 1:
            yield Gap(row, self._name, self._size, "enqueued by two")
            return
        yield Sample(row, self._name, self._size, count / took_s)
        yield Sample(f"{row}_cpu", self._name, self._size, cpu_s / count * 1e6)
        if reads is None or after is None:
            yield Gap(f"{row}_reads", self._name, self._size, NOT_TOLD)
        else:
            yield Sample(f"{row}_reads", self._name, self._size, (after - reads) / count)

    def _part(self, bulk: bool, count: int) -> list[dict[str, float]]:
        first = time() + SPARE_S + SPARE * count / self._rates[bulk]
        self.last_due = max(self.last_due, first + WITHIN_S)
        self.count += count
        for client, some in zip(self._clients, _shares(count, self._clients), strict=True):
            client.tell("enqueue", count=some, first=first, last=self.last_due, bulk=bulk)
        answers: list[dict[str, float]] = [client.answer() for client in self._clients]
        for done in answers:
            check_ahead(done)
        return answers


def check_ahead(done: Mapping[str, float]) -> None:
    """Raises Failed if, by a producer's answer, a task was due before all tasks were enqueued."""
    if done["ahead_s"] < 0:
        raise Failed(f"enqueueing took {-done['ahead_s']:.1f} s longer than expected, so tasks came due meanwhile")


def _shares(count: int, clients: list[Client]) -> list[int]:
    first = count // len(clients)
    return [count - first * (len(clients) - 1), *[first] * (len(clients) - 1)]
