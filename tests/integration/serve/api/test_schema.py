"""The API as its OpenAPI document says, under requests that schemathesis makes up."""

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import checks
from schemathesis.config import SchemathesisConfig
from starlette.applications import Starlette

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve import asgi
from celery_ext.serve.api.idempotency import HEADER, LONGEST
from tests.integration.serve.api.conftest import ALL, ORIGIN, shop

#: Answers to requests that fit the document. A cursor, a duration, a span may be none, and a lease may have ended.
EXPECTED = ["2xx", "400", "401", "403", "404", "409", "410", "429"]
#: Requests of each operation. `SCHEMATHESIS=1000` looks for longer.
EXAMPLES = int(os.environ.get("SCHEMATHESIS", "25"))


@pytest.fixture(scope="module")
def served() -> Iterator[Starlette]:
    """A server on a Redis of its own. It knows no task, so that it takes any arguments."""
    with PrivateRedis() as server:
        app = shop(server.url, tasks=False)
        made: Any = asgi(app, allow_write=True, identify=lambda request: ALL)
        yield made
        made.state.serve.broker.close()
        app.close()


@pytest.fixture
def document(served: Starlette) -> Any:
    """The document, as the server itself gives it."""
    config = SchemathesisConfig.from_dict({"checks": {"positive_data_acceptance": {"expected-statuses": EXPECTED}}})
    return schemathesis.openapi.from_asgi("/openapi.json", served, config=config)


schema = schemathesis.pytest.from_fixture("document")


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="SCHEMATHESIS" not in os.environ,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_the_api_is_what_its_document_says(case: Any) -> None:
    """Any request, good or bad, gets an answer that the document describes, and never an error of the server."""
    case.headers["Origin"] = ORIGIN
    if isinstance(case.body, dict):
        # To a schema 1.0 is an integer; the server wants one to be written as one.
        case.body = {name: _whole(value) for name, value in case.body.items()}
    not_checked: list[Any] = []
    # These paths are also those of a name with a colon in it, or of a limit, which has other methods.
    if ":" in case.path or case.path == "/v1/limits/keys":
        not_checked.append(checks.allow_header_conformance)
    if case.path == "/healthz":  # it answers 503 on purpose
        not_checked += [checks.not_a_server_error, checks.positive_data_acceptance]
    if (
        isinstance(case.body, dict) and case.body.get("if_waiting") and not case.body.get("id")
    ):  # it needs one, or a key
        not_checked.append(checks.positive_data_acceptance)
    if HEADER in case.headers:  # a key that comes with another request is refused, so each has its own
        case.headers[HEADER] = f"{case.headers[HEADER]}{uuid4()}"[-LONGEST:]
    case.call_and_validate(base_url=ORIGIN, excluded_checks=not_checked)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
