"""The app of ``proj.py`` with the tables of django-celery-beat in a database that the environment names."""

import os

import django
from django.conf import settings
from proj import app

import celery_ext

has_zones = not os.environ.get("PERIODIC_WITHOUT_ZONES")
settings.configure(
    SECRET_KEY="of a test",
    USE_TZ=has_zones,
    DJANGO_CELERY_BEAT_TZ_AWARE=has_zones,
    TIME_ZONE="UTC",
    INSTALLED_APPS=["django_celery_beat"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ["PERIODIC_DATABASE"],
            "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
        }
    },
)
django.setup()
app.conf.beat_scheduler = "django_celery_beat.schedulers:DatabaseScheduler"
celery_ext.install(app, periodic=True)
