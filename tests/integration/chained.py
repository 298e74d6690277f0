"""Tasks with delay chains, for workers of ``proj.py`` with the setting ``include=["chained"]``."""

from typing import Any

from proj import app, journal, note

from celery_ext import install

install(app)


@app.task(bind=True, delay_chain="1h*3")
def fail_when_told(self: Any) -> None:
    """Notes that it runs, waits for a word, and goes to the next step of its chain."""
    note(self)
    journal.blpop("fail", timeout=30)
    raise self.retry(exc=RuntimeError("told to"))
