"""The Django app, which registers the checks."""

from django.apps import AppConfig

from celery_ext.doctor.django.system_checks import register


class DoctorConfig(AppConfig):
    """Adds the doctor's checks to ``manage.py check``. It has no models and no URLs."""

    name = "celery_ext.doctor.django"
    label = "delayq_doctor"
    verbose_name = "kombu-delayq"

    def ready(self) -> None:
        """Registers the checks."""
        register()
