"""Which databases a journal can be in, and how they are connected to."""

import os
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread

import pytest
from sqlalchemy import Connection

from celery_ext.journal import database
from celery_ext.journal.database import Database, engine_of, parse_url
from celery_ext.journal.errors import DatabaseUnavailable
from celery_ext.journal.journal import Journal
from kombu_delayq.errors import InvalidOptions
from tests.support.journal.additions import addition
from tests.support.servers.postgres import PrivatePostgres


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mysql://user:secret@host/db", "does not know 'mysql'"),
        ("postgresql+asyncpg://user:secret@host/db", r"does not know 'postgresql\+asyncpg'"),
        ("sqlite+aiosqlite:////tmp/journal.db", "does not know"),
        ("sqlite://", "of its own in its memory"),
        ("sqlite:///:memory:", "of its own in its memory"),
        ("sqlite:///file::memory:?mode=memory&uri=true", "of its own in its memory"),
        ("sqlite:////no/such/directory/journal.db", "no directory '/no/such/directory'"),
        ("mysql://host/db?password=secret", r"password=\*\*\*'.* does not know 'mysql'"),
        ("user:secret@host/db", "not a URL of a database"),
        ("postgresql://user:secret@host:port/db", "not a URL of a database"),
        ("postgresql://user:p@secret@host/db", "write it as %40"),
        ("postgresql://us/er:secret@host/db", "write it as %40"),
        ("mysql://user:p@secret@host/db", "write it as %40"),
        ("postgresql://user:secret@one:5432,two:5432/db", r"several hosts are .*\?host=one:5432&host=two:5432"),
    ],
)
def test_other_databases_are_refused(url: str, reason: str) -> None:
    """A URL that cannot be a journal's is refused at its first use, without its password."""
    with pytest.raises(InvalidOptions, match=reason) as caught:
        Journal(url).epoch()
    assert "secret" not in str(caught.value)


def test_a_password_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the URL for people to read nor the error of a database that is away has it."""
    monkeypatch.setattr(database, "AWAY_S", 0.1)
    journal = Journal("postgresql://user:secret@127.0.0.1:1/db")
    assert journal.url == "postgresql+psycopg://user:***@127.0.0.1:1/db"
    as_parameter = Journal("postgresql://127.0.0.1:1/db?user=me&password=secret&sslpassword=secret")
    assert as_parameter.url == "postgresql+psycopg://127.0.0.1:1/db?password=***&sslpassword=***&user=me"
    for each in (journal, as_parameter):
        with pytest.raises(DatabaseUnavailable) as caught:
            each.epoch()
        assert "secret" not in str(caught.value)


def test_sessions_have_limits(postgres_server: PrivatePostgres) -> None:
    """No statement runs for ever, unless the URL says so; a schema can be named there."""
    url = postgres_server.make_schema()
    engine = engine_of(parse_url(url + "%20-c%20lock_timeout%3D7s"))
    with engine.connect() as connection:
        shown = {
            name: connection.exec_driver_sql(f"SHOW {name}").scalar()
            for name in ("statement_timeout", "lock_timeout", "search_path", "application_name")
        }
    engine.dispose()
    assert shown["statement_timeout"] == "1min"
    assert shown["lock_timeout"] == "7s"
    assert shown["search_path"].startswith("journal_")
    assert shown["application_name"] == "delayq"


def test_a_process_has_at_most_five_connections(
    postgres_server: PrivatePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A further call waits until one is free, and is an error if none is free in time."""
    monkeypatch.setattr(database, "CALL_S", 0.2)
    journal = Database(postgres_server.make_schema())
    with ExitStack() as held:
        for _ in range(5):
            held.enter_context(journal.reading())
        with pytest.raises(DatabaseUnavailable, match="limit of size 5 overflow 0 reached"):
            journal.read(lambda connection: connection)
    assert journal.read(lambda connection: connection.exec_driver_sql("SELECT 1").scalar()) == 1
    journal.engine.dispose()


def test_the_url_may_have_several_hosts(postgres_server: PrivatePostgres) -> None:
    """The journal is at the first that answers and takes writes, as the error for libpq's form says."""
    one = str(postgres_server.directory)
    url = postgres_server.make_schema().replace(f"host={one}", f"host=127.0.0.1:1&host={one}:5432")
    assert Journal(f"{url}&target_session_attrs=read-write").epoch() == 1


def _adds(journal: Journal, number: int) -> None:
    journal.add([addition(number)])
    os._exit(0)  # as Celery's prefork processes end


def test_a_forked_process_has_connections_of_its_own(journal: Journal) -> None:
    """A journal that was used before a fork works on both sides of it."""
    journal.add([addition(0)])
    children = [get_context("fork").Process(target=_adds, args=(journal, number)) for number in (1, 2, 3)]
    for child in children:
        child.start()
    journal.add([addition(4)])
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert journal.count("orders") == len(journal.browse("orders")) == 5


def test_a_child_forked_while_another_thread_writes_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's lock, which the writing thread holds, is not in the child: as when prefork replaces a child."""
    monkeypatch.setattr(database, "SQLITE_WAIT_S", 20)
    journal = Journal(f"sqlite:///{tmp_path}/journal.db")
    journal.add([addition(0)])
    writes, forked = Event(), Event()

    def write(connection: Connection) -> None:
        connection.exec_driver_sql("UPDATE delayq_journal SET value = value")
        writes.set()
        forked.wait(0.5)  # the fork waits for the end of the transaction

    thread = Thread(target=lambda: Database(f"sqlite:///{tmp_path}/journal.db").write(write))
    thread.start()
    assert writes.wait(30)
    child = get_context("fork").Process(target=_adds, args=(journal, 1), daemon=True)
    child.start()
    forked.set()
    child.join(60)
    thread.join(30)
    assert (child.exitcode, journal.count("orders")) == (0, 2)


def test_readers_of_sqlite_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    """A transaction that writes keeps no reader waiting, and is not seen before it is committed."""
    journal = Journal(f"sqlite:///{tmp_path}/journal.db")
    journal.add([addition(1)])
    with journal.engine.execution_options(delayq_writes=True).begin() as connection:
        connection.exec_driver_sql("DELETE FROM delayq_messages")
        assert [row.id for row in journal.browse("orders")] == ["id-1"]
        assert journal.count("orders") == 1
    assert journal.browse("orders") == []
