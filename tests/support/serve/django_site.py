"""A Django site with our URLs, as a program: ``python -m tests.support.serve.django_site BROKER DIRECTORY SERVER``.

The server is ``wsgi`` or ``asgi``. The program prints one line of JSON: its URL, and the session cookies of a member of
the staff and of somebody else. It ends when its standard input does.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import django
from celery import Celery
from django.conf import settings
from django.contrib import admin
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.urls import include, path
from werkzeug.serving import make_server

from celery_ext.connection import TRANSPORT
from tests.support.serve.running import in_thread

PREFIX = "tools/delayq"


def urls() -> list[Any]:
    """Returns the URLs of the site."""
    return [path("admin/", admin.site.urls), path(f"{PREFIX}/", include("celery_ext.serve.django_urls"))]


def main(broker: str, directory: str, server: str) -> None:
    """Serves until nobody holds the standard input any more."""
    app = Celery("site", broker=broker, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    contrib = ("admin", "auth", "contenttypes", "sessions", "messages")
    middleware = ("sessions.middleware.SessionMiddleware", "auth.middleware.AuthenticationMiddleware")
    settings.configure(
        SECRET_KEY="of a test",
        ALLOWED_HOSTS=["127.0.0.1", "localhost"],
        ROOT_URLCONF=__name__,
        INSTALLED_APPS=[f"django.contrib.{name}" for name in contrib],
        MIDDLEWARE=[
            "django.middleware.security.SecurityMiddleware",
            f"django.contrib.{middleware[0]}",
            "django.middleware.common.CommonMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            f"django.contrib.{middleware[1]}",
            "django.contrib.messages.middleware.MessageMiddleware",
            "django.middleware.clickjacking.XFrameOptionsMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(Path(directory) / "db.sqlite3")}},
        DELAYQ_SERVE={"app": app, "allow_write": True},
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    )
    django.setup()
    globals()["urlpatterns"] = urls()
    call_command("migrate", verbosity=0)
    with in_thread(get_asgi_application()) if server == "asgi" else wsgi_server() as url:
        found = {"url": f"{url}{PREFIX}"}
        print(json.dumps(found | {name: session(name, staff=name == "ada") for name in ("ada", "bob")}), flush=True)
        sys.stdin.read()


@contextmanager
def wsgi_server() -> Iterator[str]:
    """Serves the site by WSGI from a thread, and yields its URL."""
    server = make_server("127.0.0.1", 0, get_wsgi_application(), threaded=True)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"


def session(name: str, *, staff: bool) -> str:
    """Makes a user who is logged in. Returns the cookie."""
    from django.contrib.auth.models import User
    from django.test import Client

    browser = Client()
    browser.force_login(User.objects.create_user(name, is_staff=staff))
    return f"sessionid={browser.cookies['sessionid'].value}"


if __name__ == "__main__":
    main(*sys.argv[1:])
