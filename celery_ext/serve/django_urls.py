"""URLs for Django: ``path("delayq/", include("celery_ext.serve.django_urls"))``, for members of the staff.

The setting ``DELAYQ_SERVE`` has fields of ``ServeSettings``, and ``app``, the Celery app or its import path.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import Any

from celery.app.utils import find_app
from django.conf import settings
from django.contrib.auth.decorators import user_passes_test
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.urls import NoReverseMatch, re_path, reverse
from django.views.decorators.csrf import csrf_exempt
from starlette.requests import Request

from celery_ext.serve.access.identity import OPERATING, Caller
from celery_ext.serve.access.tokens import PREFIX
from celery_ext.serve.application import asgi
from celery_ext.serve.wsgi_mount import AsWSGI

#: Key of the environment in which the view passes on who called. Clients can set keys that begin with HTTP_ alone.
_CALLER = "delayq.caller"


@cache
def _application() -> AsWSGI:
    given = dict(getattr(settings, "DELAYQ_SERVE", {}))
    try:
        app = given.pop("app")  # Celery's current_app is that of a thread, and each request may have another
    except KeyError:
        raise ImproperlyConfigured('DELAYQ_SERVE needs the Celery app: {"app": "proj.celery:app"}') from None
    with suppress(NoReverseMatch):  # the project has no admin
        given.setdefault("back_url", reverse("admin:index"))
    return AsWSGI(asgi(find_app(app) if isinstance(app, str) else app, identify=_identify, **given))


def _identify(request: Request) -> Caller | None:
    found: Caller | None = request.scope["wsgi_environ"].get(_CALLER)
    return found


@csrf_exempt  # the application looks at Sec-Fetch-Site and Origin itself
def serve(request: HttpRequest, path: str) -> HttpResponseBase:
    """Answers a request: of a member of the staff, or of a program with a token."""
    if request.headers.get("Authorization", "").partition(" ")[2].strip().startswith(PREFIX):
        return _answer(request, path, None)
    answered: HttpResponseBase = _for_staff(request, path)
    return answered


@user_passes_test(lambda user: user.is_active and user.is_staff, login_url="admin:login")
def _for_staff(request: HttpRequest, path: str) -> HttpResponseBase:
    return _answer(request, path, Caller(request.user.get_username(), OPERATING))


def _answer(request: HttpRequest, path: str, caller: Caller | None) -> HttpResponseBase:
    request.get_host()  # checks ALLOWED_HOSTS
    prefix = request.path.removesuffix(path).rstrip("/")
    environ: dict[str, Any] = {name: value for name, value in request.META.items() if isinstance(value, str)}
    environ |= {
        "SCRIPT_NAME": _as_wsgi(prefix),
        "PATH_INFO": _as_wsgi(request.path.removeprefix(prefix)),
        "SERVER_PROTOCOL": environ.get("SERVER_PROTOCOL", "HTTP/1.1"),
        "wsgi.url_scheme": request.scheme or "http",
        "wsgi.input": request,
        _CALLER: caller,
    }
    if scope := getattr(request, "scope", None):  # under ASGI, where Django has read the whole body already
        environ |= {"RAW_URI": scope.get("raw_path", b"").decode("latin-1"), "wsgi.input_terminated": True}
    started: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], error: object = None) -> Callable[[bytes], object]:
        started[:] = [status, headers]
        return lambda data: None

    body = iter(_application()(environ, start_response))
    first = next(body, b"")
    response = StreamingHttpResponse(chain((first,), body), status=int(started[0].partition(" ")[0]))
    del response["Content-Type"]
    for name, value in started[1]:
        if name.lower() == "set-cookie":
            response.cookies.load(value)
        else:
            response[name] = value
    return response


def _as_wsgi(text: str) -> str:
    """Returns a text as WSGI has it: its UTF-8 bytes as Latin-1."""
    return text.encode().decode("latin-1")


urlpatterns = [re_path(r"^(?P<path>.*)$", serve, name="delayq")]
