"""Reads the forms of the pages."""

from urllib.parse import parse_qsl

import anyio.from_thread
from starlette.requests import Request

from celery_ext.serve.problems import bad_request

#: Most fields of a form.
MOST_FIELDS = 1000


def form_of(request: Request) -> list[tuple[str, str]]:
    """Returns the names and values of a form; for handlers that run in a thread.

    Raises:
        Problem: 400, the body is no form.
    """
    body: bytes = anyio.from_thread.run(request.body)
    try:
        return parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError:
        raise bad_request("the form cannot be read") from None
