"""A Redis with a journal in PostgreSQL. It loses its data, and the database goes away."""

import random
import signal
import time
from pathlib import Path
from typing import Any, ClassVar, Self

import redis

from celery_ext.journal import Journal
from kombu_delayq.text import as_text
from tests.chaos.brokers.single import AWAY_S, WEIGHTS, Acts, SingleRedis
from tests.support.conditions import until
from tests.support.servers.postgres import PrivatePostgres

#: Messages that are due later than the first wait in the journal, until they are as near as the second, in s.
HORIZON_S, LEAD_S = 2.0, 1.0
#: What kombu declares once, and what a fleet that goes on does not declare again.
BINDINGS = "_kombu.binding*"


class JournaledRedis(SingleRedis):
    """One server, whose delayed messages all have rows, and which is filled again by itself after a loss."""

    #: Redis also loses its data, and the database goes away.
    weights: ClassVar = {**WEIGHTS, "redis flush": 4, "postgres restart": 5, "postgres crash": 4}

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._postgres = PrivatePostgres(fsync="on", full_page_writes="on")
        self._url = ""
        self._lost: list[float] = []

    def transport_options(self) -> dict[str, Any]:
        """Returns the transport options of the journal."""
        return {
            "journal_url": self._url,
            "journal": "all",
            "journal_horizon": HORIZON_S,
            "journal_lead": LEAD_S,
            "journal_restore": "auto",
            "poll_interval": 0.5,
        }

    def acts(self, strength: float, chance: random.Random) -> Acts:
        """Returns what may befall it, and the database."""
        return {
            **super().acts(strength, chance),
            "redis flush": self.lose_data,
            "postgres restart": lambda: self.restart_database(AWAY_S * strength, crash=False),
            "postgres crash": lambda: self.restart_database(AWAY_S * strength, crash=True),
        }

    def lose_data(self) -> None:
        """Makes Redis lose all it has but the bindings, once a promoter works: nobody notices a loss before that."""
        journal = Journal(self._url)
        until(lambda: (journal.epoch(), journal.heartbeat()) != (1, 0), what="a promoter works")
        begin = time.time()
        with redis.Redis(port=self.server.port, socket_timeout=10) as client:
            bindings = {key: client.dump(key) for key in client.scan_iter(BINDINGS)}
            with client.pipeline(transaction=True) as pipe:
                pipe.flushall()
                for key, value in bindings.items():
                    pipe.restore(as_text(key), 0, value or b"")
                pipe.execute()
        self._lost.append(time.time())
        self.faults.add("redis flush", begin=begin, end=time.time())

    def restart_database(self, away_s: float, *, crash: bool) -> None:
        """Ends the database, as if it had crashed or tidily, and starts it again after a while."""
        begin = time.time()
        self._postgres.stop(signal.SIGQUIT if crash else signal.SIGINT)
        time.sleep(away_s)
        self._postgres.start()
        self.faults.add("postgres crash" if crash else "postgres restart", begin=begin, end=time.time())

    def waiting_beside(self) -> int:
        """Counts the messages that only the journal has."""
        return sum(size.waiting for size in Journal(self._url).sizes().values())

    def gone_with(self, intended: float, due: float) -> str:
        """Returns why a message that was due may be gone: it stood in its queue when Redis lost its data."""
        is_gone = any(intended <= lost and due <= lost for lost in self._lost)
        return "was due, and in its queue or in hand, when Redis lost its data" if is_gone else ""

    def __enter__(self) -> Self:
        super().__enter__()
        self._url = self._postgres.start().make_schema()
        return self

    def __exit__(self, *args: object) -> None:
        super().__exit__(*args)
        self._postgres.close()
