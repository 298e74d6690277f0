"""A real Prometheus, and ``promtool``, which Debian's package ``prometheus`` brings."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import yaml

from celery_ext.demo.private_redis import free_port
from tests.support.conditions import until
from tests.support.missing import missing


def tool(name: str) -> str:
    """Returns the path of a program of Prometheus. Without it the test fails in CI, and is skipped elsewhere."""
    found = shutil.which(name)
    if found is None:
        missing(f"there is no {name} on the PATH: install Debian's package prometheus")
    return found


def promtool(*arguments: str, stdin: str = "") -> str:
    """Runs ``promtool``, which must succeed. Returns what it wrote."""
    done = subprocess.run([tool("promtool"), *arguments], input=stdin, capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


class Prometheus:
    """A ``prometheus`` process that scrapes targets each second and evaluates the alert rules.

    Args:
        directory: For its configuration and its data.
        rules: File of alert rules.
        targets: Name of each job, and the port of this machine that it scrapes.
        tokens: Names of those jobs that need a token, and the token.
    """

    def __init__(self, directory: Path, rules: Path, targets: Mapping[str, int], tokens: Mapping[str, str]) -> None:
        self.port = free_port()
        jobs = [
            {
                "job_name": name,
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
                **({"authorization": {"credentials": tokens[name]}} if name in tokens else {}),
            }
            for name, port in targets.items()
        ]
        conf = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": jobs,
        }
        (directory / "prometheus.yml").write_text(yaml.safe_dump(conf), encoding="utf-8")
        self._log = (directory / "prometheus.log").open("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [
                tool("prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    def ask(self, path: str, **query: str) -> Any:
        """Asks its HTTP API. Returns the data of the answer, which must be a success."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("GET", f"/api/v1/{path}?{urlencode(query)}")
            answer = json.loads(connection.getresponse().read())
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, expr: str) -> list[float]:
        """Evaluates an expression now. Returns the values of its series."""
        return [float(series["value"][1]) for series in self.ask("query", query=expr)["result"]]

    def ready(self) -> Self:
        """Waits until it answers."""

        def answers() -> bool:
            assert self._process.poll() is None, Path(self._log.name).read_text(encoding="utf-8")[-4000:]
            try:
                self.ask("targets")
            except (OSError, ValueError):
                return False
            return True

        until(answers, 60, "Prometheus answers")
        return self

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait(10)
        self._log.close()
