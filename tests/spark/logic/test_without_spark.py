"""What can be used where the packages of the extra ``spark`` are not installed, each in a process without them."""

import subprocess
import sys

import pytest

from celery_ext.spark import task_id

_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run_without(missing: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a Python that does not have some packages."""
    program = _WITHOUT.format(missing=missing) + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_a_task_id_needs_neither_spark_nor_arrow() -> None:
    """An app that only cancels what a Spark job has enqueued gets the same id without the packages of the extra."""
    code = "from celery_ext.spark import task_id; print(task_id('orders.close', 7, 'é'))"
    done = run_without(("pyspark", "pyarrow"), code)
    assert done.stdout.strip() == task_id("orders.close", 7, "é"), done.stderr


def test_options_and_errors_need_neither_spark_nor_arrow() -> None:
    """The tables of the documentation are made from modules that need no package of the extra."""
    code = "import celery_ext.spark.options, celery_ext.spark.errors; print(celery_ext.spark.errors.BadRow.__name__)"
    done = run_without(("pyspark", "pyarrow"), code)
    assert done.stdout.strip() == "BadRow", done.stderr


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
@pytest.mark.parametrize("name", ["register", "CeleryDataSource"])
def test_a_missing_package_is_named_with_the_extra(missing: str, name: str) -> None:
    """What needs Spark says which package is missing, and which extra brings it."""
    done = run_without((missing,), f"from celery_ext.spark import {name}")
    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: celery_ext.spark.{name} needs {missing}, which is not installed. "
        "Install it: pip install 'kombu-delayq[spark]'"
    )
