"""Which Redis the tests run against."""

import re
import subprocess
from functools import cache

from celery_ext.demo.private_redis import find_server


@cache
def major_version() -> int:
    """Returns the first number of the version of the ``redis-server`` that tests start."""
    output = subprocess.run([find_server(), "--version"], capture_output=True, text=True, check=True).stdout
    return int(re.findall(r" v=(\d+)\.", output)[0])
