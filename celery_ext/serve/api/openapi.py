"""``/openapi.json``: the API in OpenAPI 3.1, made from the table of routes and from the types of requests."""

import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from inspect import cleandoc
from typing import Any

import msgspec
from starlette.requests import Request

from celery_ext.serve.access.identity import Action
from celery_ext.serve.api.exchange import Endpoints, ProblemDetails, Strict
from celery_ext.serve.api.idempotency import HEADER, LONGEST
from celery_ext.serve.problems import MEDIA_TYPE
from celery_ext.serve.routes import ActionRoute, Doc
from kombu_delayq import __version__

JSON = "application/json"
_REF = "#/components/schemas/{name}"
_NAME = re.compile(r"\{(\w+):\w+\}")
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)
_ABOUT = """\
Enqueues, shows and changes tasks of Celery that wait in Redis until they are due.

Errors are problem details, RFC 9457. A caller may use the queues, tasks and actions that its token names;
`x-delayq-action` of an operation is its action.
"""


endpoint = Endpoints("About")


@endpoint("GET", "/openapi.json", None)
def openapi(request: Request) -> dict[str, Any]:
    """Describe this API."""
    state = request.app.state
    if not hasattr(state, "openapi"):  # it takes some ms to make, and anybody may ask for it
        state.openapi = document(request.app.routes)
    return {**state.openapi, "servers": _servers(request.scope.get("root_path", ""))}


def document(routes: Iterable[Any], root_path: str = "") -> dict[str, Any]:
    """Returns the OpenAPI document of those routes that are part of the API.

    Args:
        routes: All routes of the server.
        root_path: What stands before each path.
    """
    shown = [route for route in routes if isinstance(route, ActionRoute) and route.doc is not None]
    schemas = _Schemas(shown)
    paths: dict[str, dict[str, Any]] = {}
    for route in shown:
        paths.setdefault(_NAME.sub(r"{\1}", route.path), {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "delayq serve", "version": __version__, "description": _ABOUT},
        "servers": _servers(root_path),
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _servers(root_path: str) -> list[dict[str, str]]:
    return [{"url": root_path or "/"}]


class _Schemas:
    """The JSON schemas of all types that routes name."""

    def __init__(self, routes: Iterable[ActionRoute]) -> None:
        kinds: list[Any] = [ProblemDetails]
        for route in routes:
            doc = route.doc
            if doc is not None:
                kinds += [kind for kind in (doc.query, doc.body, *doc.answers.values()) if kind is not None]
        kinds = list(dict.fromkeys(kinds))
        found, self.components = msgspec.json.schema_components(kinds, ref_template=_REF)
        self._of = dict(zip(kinds, found, strict=True))
        for schema in self.components.values():
            _describe(schema)
        for kind in _heirs_of(Strict):
            self.components.get(kind.__name__, {}).update(getattr(kind, "schema_extra", {}))

    def of(self, kind: Any) -> dict[str, Any]:
        """Returns the schema of a type."""
        return dict(self._of[kind])

    def query(self, kind: Any) -> list[dict[str, Any]]:
        """Returns the parameters of a query, a field of the type each."""
        schema = self.components[self.of(kind)["$ref"].rpartition("/")[2]]
        needed = schema.get("required", ())
        return [
            {
                "name": name,
                "in": "query",
                "required": name in needed,
                "schema": _without_null(field),
            }
            for name, field in schema["properties"].items()
        ]


def _operation(route: ActionRoute, schemas: _Schemas) -> dict[str, Any]:
    doc = route.doc or Doc("")
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _NAME.findall(route.path)
    ]
    parameters += schemas.query(doc.query) if doc.query is not None else []
    if doc.idempotent:
        about = "The first answer to a key is kept for a day, and a request that comes again with the key gets it."
        text = {"type": "string", "minLength": 1, "maxLength": LONGEST}
        parameters.append({"name": HEADER, "in": "header", "description": about, "schema": text})
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": doc.summary,
        "tags": [doc.tag] if doc.tag else [],
        "parameters": parameters,
        "responses": {
            **{str(status): _answer(status, kind, schemas) for status, kind in doc.answers.items()},
            "default": {
                "description": "Why the request failed",
                "content": {MEDIA_TYPE: {"schema": schemas.of(ProblemDetails)}},
            },
        },
    }
    if doc.body is not None:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas.of(doc.body)}}}
    if route.action is None:
        found["security"] = []
    else:
        found["x-delayq-action"] = str(Action(route.action))
    return found


def _answer(status: int, kind: Any, schemas: _Schemas) -> dict[str, Any]:
    phrase = HTTPStatus(status).phrase
    return {"description": phrase, **({} if kind is None else {"content": {JSON: {"schema": schemas.of(kind)}}})}


def _heirs_of(kind: type[Strict]) -> Iterator[type[Strict]]:
    for heir in kind.__subclasses__():
        yield from (heir, *_heirs_of(heir))


def _describe(schema: dict[str, Any]) -> None:
    """Takes the docstring of a Struct apart, into the description of the whole and that of each field."""
    text = cleandoc(schema.get("description", ""))
    schema["description"] = text.partition("\n\nAttributes:")[0]
    for name, about in _ATTRIBUTE.findall(text):
        field = schema.get("properties", {}).get(name.removesuffix("_"))  # such as ``from_``
        if field is not None:
            field["description"] = re.sub(r"\s+", " ", about).replace("``", "`")


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a query parameter: it may be left out, and it cannot be null."""
    kept = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if not kept:
        return {name: value for name, value in schema.items() if name != "description" or value}
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {**(kept[0] if len(kept) == 1 else {"anyOf": kept}), **rest}
