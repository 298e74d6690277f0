"""A system check for Django: add `celery_ext.doctor.django` to `INSTALLED_APPS`."""
