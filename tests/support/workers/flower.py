"""A real Flower beside the workers of ``proj.py``."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from tests.support.conditions import until
from tests.support.workers.harness import APPS, Proj


class Flower:
    """A ``celery flower`` process, on a free port of this machine only.

    Args:
        proj: The app whose workers it watches.
    """

    def __init__(self, proj: Proj) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        self._log = tempfile.NamedTemporaryFile("w+", prefix="delayq-flower-", suffix=".log")  # noqa: SIM115
        options = ("--address=127.0.0.1", f"--port={self.port}", "--inspect-timeout=5000")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "proj", "flower", *options],
            cwd=APPS,
            env={**os.environ, **proj.environment(), "FLOWER_UNAUTHENTICATED_API": "true"},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def log(self) -> str:
        """Its log so far."""
        return Path(self._log.name).read_text(errors="replace")

    def request(self, method: str, path: str, **query: str) -> str:
        """Makes an HTTP request that must succeed. Returns the text of the response."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path)
            response = connection.getresponse()
            text = response.read().decode()
        assert response.status == 200, f"{method} {path}: {response.status} {text}\n{self.log[-4000:]}"
        return text

    def api(self, method: str, path: str, **query: str) -> Any:
        """Makes a request of the HTTP API. Returns its JSON."""
        return json.loads(self.request(method, f"/api/{path}", **query))

    def ready(self) -> Self:
        """Waits until it answers."""

        def answers() -> bool:
            assert self._process.poll() is None, f"Flower ended:\n{self.log[-4000:]}"
            try:
                self.request("GET", "/healthcheck")
            except OSError:
                return False
            return True

        until(answers, 40, "Flower answers")
        return self

    def close(self) -> None:
        """Ends it."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
        self._log.close()
