"""The files that pages load: styles, scripts, an icon. They are small, and stay in memory."""

from functools import cache
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve.problems import Problem

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}


class _File(NamedTuple):
    content: bytes
    kind: str
    etag: str


def static(request: Request) -> Response:
    """Answers with a file. A browser asks each time whether it has changed, and gets it only then."""
    file = _files().get(request.path_params["path"])
    if file is None:
        raise Problem(404, "there is no such file")
    headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    return Response(file.content, 200, headers, file.kind)


@cache
def _files() -> dict[str, _File]:
    found = {}
    for name, path in _walk(files("celery_ext.serve.page").joinpath("static"), ""):
        content = path.read_bytes()
        kind = _TYPES[name.rpartition(".")[2] if "." in name else ""]
        found[name] = _File(content, kind, f'"{blake2b(content, digest_size=12).hexdigest()}"')
    return found


def _walk(folder: Traversable, under: str) -> list[tuple[str, Traversable]]:
    found = []
    for entry in folder.iterdir():
        found += _walk(entry, f"{under}{entry.name}/") if entry.is_dir() else [(f"{under}{entry.name}", entry)]
    return found
