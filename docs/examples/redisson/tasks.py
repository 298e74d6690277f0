"""Tasks of a shop that is half Python, half Java."""

from celery import Celery

app = Celery("shop")
app.config_from_object("celeryconfig")


@app.task(name="mails.send")
def send(customer: str, subject: str) -> str:
    """Sends a mail; JVM services offer this task. Returns what was done."""
    return f"mail to {customer}: {subject}"
