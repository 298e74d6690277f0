"""An empty journal in each database."""

import pytest

from celery_ext.journal.journal import Journal


@pytest.fixture
def journal(journal_url: str) -> Journal:
    return Journal(journal_url)
