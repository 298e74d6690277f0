"""The OpenAPI document, and that no route is without its part in it."""

import re
from typing import get_args

from celery_ext.serve.api.exchange import Answer, Sought, Strict
from celery_ext.serve.api.openapi import document
from celery_ext.serve.application import routes

#: Parts of the page answer with HTML, which no program reads.
_OF_PROGRAMS = re.compile(r"/(v1/|metrics|scale|healthz|openapi)")
#: What a JSON Schema means by ``\\s``: white space and line ends of ECMA-262.
_SPACE = r"\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"


def test_every_route_of_the_api_is_documented() -> None:
    """A route for programs has a summary, a heading, and the types of its answers."""
    shown = [route for route in routes() if _OF_PROGRAMS.match(route.path)]
    assert len(shown) > 10
    for route in shown:
        assert route.doc is not None, f"{route.method} {route.path} has no doc"
        assert route.doc.summary.endswith("."), route.path
        assert route.doc.tag, f"{route.path} has no tag"
        assert route.doc.answers, f"{route.path} says nothing of its answers"


def test_the_document_fits_together() -> None:
    """Each reference leads to a schema, each operation has its own id, and names in paths are parameters."""
    made = document(routes(), "/delayq")
    assert made["servers"] == [{"url": "/delayq"}]
    schemas = made["components"]["schemas"]
    assert set(re.findall(r"#/components/schemas/([\w.]+)", repr(made))) <= set(schemas)
    operations = [one for path in made["paths"].values() for one in path.values()]
    ids = [one["operationId"] for one in operations]
    assert len(ids) == len(set(ids))
    for path, methods in made["paths"].items():
        assert ":name" not in path
        for operation in methods.values():
            named = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
            assert named == re.findall(r"\{(\w+)\}", path)


def test_fields_are_described_where_they_stand() -> None:
    """The docstring of a type is taken apart: each field has its own part of it, and no field is without."""
    schemas = document(routes())["components"]["schemas"]
    ours = {kind.__name__ for kind in (*Strict.__subclasses__(), *Answer.__subclasses__())}
    asked = schemas["TaskRequest"]
    assert asked["description"] == "A task to enqueue."
    assert asked["required"] == ["task"]
    assert asked["additionalProperties"] is False
    assert asked["properties"]["countdown"]["description"].startswith("Delay in s.")
    nameless = [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, about in schema.get("properties", {}).items()
        if name in ours and "description" not in about
    ]
    assert nameless == []


def test_a_blank_text_is_blank_to_the_server_and_to_the_document() -> None:
    """White space of Python and of JSON Schema does not count as text in either."""
    [meta] = get_args(Sought)[1:]
    characters = [*map(chr, range(0x10000))]
    blank = {each for each in characters if each.isspace() or re.match(f"[{_SPACE}]", each)}
    for pattern in (meta.pattern, meta.pattern.replace(r"\s", _SPACE)):
        assert {each for each in characters if not re.search(pattern, each)} == blank
