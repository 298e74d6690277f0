"""Settings of the project."""

SECRET_KEY = "for an example"
INSTALLED_APPS = ["orders"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "shop.urls"
USE_TZ = True

CELERY_BROKER_URL = "redis://localhost:6379/0"
CELERY_BROKER_TRANSPORT = "kombu_delayq.transport:Transport"
CELERY_TIMEZONE = "Europe/Berlin"
