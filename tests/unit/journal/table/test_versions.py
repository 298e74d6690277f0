"""The tables are made once, and refused if they are of another version."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, text

from celery_ext.journal import schema
from celery_ext.journal.database import engine_of, parse_url
from celery_ext.journal.errors import UnsupportedJournal
from celery_ext.journal.facts import LeadingPromoter
from celery_ext.journal.journal import Journal
from tests.support.journal.additions import DUE_MS, addition
from tests.support.pages import ROOT, blocks
from tests.support.servers.postgres import PrivatePostgres


@pytest.fixture
def engine(journal_url: str) -> Engine:
    """The database, without tables."""
    return engine_of(parse_url(journal_url))


def test_the_rights_of_the_page_are_enough(postgres_server: PrivatePostgres) -> None:
    """Who was given them by the owner of the tables, and no more, adds, promotes, cancels and trims."""
    url = postgres_server.make_schema()
    name = url.rpartition("%3D")[2]
    assert Journal(url).epoch() == 1
    postgres_server.execute(f"CREATE ROLE app_{name} LOGIN")
    [rights] = blocks(ROOT / "docs/how-to/journal.md", "sql")
    assert {found for found in schema.metadata.tables if found not in rights} == set()
    rights = rights.replace("SCHEMA public", f"SCHEMA {name}").replace("TO app", f"TO app_{name}")
    postgres_server.execute(f"SET search_path = {name}; {rights}")
    limited = Journal(url.replace("//postgres@", f"//app_{name}@"))
    limited.add([addition(number) for number in range(3)])
    limited.add([addition(9)], offered=True)
    waiting = limited.promotable(DUE_MS * 2, 10)
    assert limited.mark([waiting[0].seq]) == {waiting[0].seq}
    assert limited.replace([(waiting[1].seq, addition(7))]) != [None]
    limited.set_watermarks(DUE_MS, {})
    assert limited.lead(leader := LeadingPromoter(1, "host", "", "", ""), None)
    assert limited.next_heartbeat(leader.token, 0) == 1
    assert len(limited.delete(["id-2"])) == 1
    limited.end_epoch(DUE_MS)
    limited.trim(0.0)
    engine_of(parse_url(url)).dispose()
    limited.engine.dispose()


def test_the_tables_are_made_once(journal_url: str) -> None:
    """Those who begin at once, each with its own connection, share one journal."""
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(lambda _: Journal(journal_url).id, range(8)))) == 1


@pytest.mark.parametrize("version", ["0", "99"])
def test_another_version_is_refused(engine: Engine, journal_url: str, version: str) -> None:
    """A release that does not know the tables leaves them alone, and says what to do."""
    assert Journal(journal_url).epoch() == 1
    with engine.begin() as connection:
        connection.execute(text("UPDATE delayq_journal SET value = :v WHERE name = 'version'"), {"v": version})
    with pytest.raises(UnsupportedJournal, match=rf"version {version},.*use the release that made them"):
        Journal(journal_url).add([addition(1)])
