"""The system check of Django, in a project of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support import ROOT

pytestmark = pytest.mark.wide

#: A project as Celery's documentation has it: its package imports the app.
CELERY = """
from celery import Celery

app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
"""
SETTINGS = """
SECRET_KEY = "of a test"
INSTALLED_APPS = ["celery_ext.doctor.django.DoctorConfig"]
DATABASES = {}
"""


def project(directory: Path, *settings: str, celery: str = CELERY) -> Path:
    """Writes a Django project ``shop``. Returns its directory."""
    package = directory / "shop"
    package.mkdir()
    (package / "celery.py").write_text(celery)
    (package / "__init__.py").write_text("from .celery import app" if celery else "")
    (package / "settings.py").write_text("\n".join([SETTINGS, *settings]))
    return directory


def check(site: Path, *args: str, code: int = 0) -> str:
    """Runs ``manage.py check``. Returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "django", "check", "--tag", "delayq", *args],
        cwd=site,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "shop.settings", "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_stock_app_fails_the_check_without_a_broker(tmp_path: Path) -> None:
    """Nothing is connected to: the broker of these settings does not exist."""
    out = check(project(tmp_path, 'CELERY_BROKER_URL = "redis://localhost:1/0"'), code=1)
    assert "(delayq.transport) the app itself uses the stock transport 'redis'" in out
    assert (
        'HINT: set broker_transport = "kombu_delayq.transport:Transport"; more: delayq doctor --explain migrate#switch'
        in out
    )


def test_a_switched_app_passes(tmp_path: Path) -> None:
    """With our transport there is no issue, and no connection either."""
    settings = ('CELERY_BROKER_URL = "redis://localhost:1/0"', 'CELERY_BROKER_TRANSPORT = "delayq"')
    assert "no issues" in check(project(tmp_path, *settings))


def test_deploy_asks_the_broker(tmp_path: Path, own_server: PrivateRedis) -> None:
    """With --deploy Redis is looked at, too; it keeps nothing on disk, and nobody transfers."""
    settings = (f"CELERY_BROKER_URL = {json.dumps(own_server.url)}", 'CELERY_BROKER_TRANSPORT = "delayq"')
    site = project(tmp_path, *settings)
    out = check(site, "--deploy", code=1)
    assert "(delayq.persistence)" in out
    assert "(delayq.leader) no transfer worker runs" in out
    assert "(delayq.clock)" not in out
    silenced = 'SILENCED_SYSTEM_CHECKS = ["delayq.persistence"]'
    (site / "shop" / "settings.py").write_text("\n".join([SETTINGS, *settings, silenced]))
    assert "(delayq.persistence)" not in check(site, "--deploy")  # what is left are warnings


@pytest.mark.parametrize(
    ("celery", "said"),
    [
        ("", "no Celery app is imported"),
        (f"{CELERY}\nother = Celery('other')", "which Celery app? There are other, shop"),
    ],
)
def test_an_app_that_is_not_clear_has_to_be_named(tmp_path: Path, celery: str, said: str) -> None:
    """None, or two: a warning says so, and DELAYQ_APP names one."""
    site = project(tmp_path, 'CELERY_BROKER_TRANSPORT = "delayq"', celery=celery)
    out = check(site)
    assert f"(delayq.app) {said}" in out
    assert 'HINT: set DELAYQ_APP = "proj.celery:app"' in out
    if celery:
        with (site / "shop" / "settings.py").open("a") as settings:
            settings.write('\nDELAYQ_APP = "shop.celery:app"')
        assert "no issues" in check(site)


@pytest.mark.parametrize(
    "wrong", ["'shop.celry:app'", "'shop.celery:nope'", "'shop.settings'", "'shop.celery:Celery'", "5"]
)
def test_a_wrong_name_is_an_error(tmp_path: Path, wrong: str) -> None:
    """It is one error of the check among others, not the end of all checks."""
    out = check(project(tmp_path, f"DELAYQ_APP = {wrong}"), code=1)
    assert f"(delayq.app) DELAYQ_APP = {wrong} " in out
    assert 'HINT: set DELAYQ_APP = "proj.celery:app"' in out
    assert "Traceback" not in out
