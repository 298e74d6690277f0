"""An empty journal in each database."""

import pytest

from celery_ext.journal.table import Journal


@pytest.fixture
def journal(journal_url: str) -> Journal:
    return Journal(journal_url)
