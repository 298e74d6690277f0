"""Connections to the journal's database: one engine for each process and URL."""

import os
from functools import cache
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url

#: How long a statement waits for another process that writes to the same SQLite file, in s.
SQLITE_WAIT_S = 30


def engine_of(url: str) -> Engine:
    """Returns the engine of a URL. A process that was forked gets its own."""
    return _engine(url, os.getpid())


@cache
def _engine(url: str, pid: int) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return create_engine(parsed, pool_pre_ping=True)
    engine = create_engine(parsed, connect_args={"timeout": SQLITE_WAIT_S})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # SQLAlchemy's ``begin`` below begins transactions, not the driver
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def _begin_sqlite(connection: Any) -> None:
    # A transaction that reads first and then writes would fail when another process has written meanwhile.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
