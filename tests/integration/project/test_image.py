"""The container image: the steps of its Dockerfile, in a directory instead of an image, and what runs in it."""

import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import redis
from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis, free_port
from tests.support import ROOT
from tests.support.conditions import until
from tests.support.missing import missing
from tests.support.workers.harness import TRANSPORT

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("build")]


def instructions() -> list[tuple[str, str]]:
    """Returns the instructions of the Dockerfile, each with its arguments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines) if name]


def last(name: str) -> str:
    """Returns the arguments of the last instruction of this name."""
    return [rest for each, rest in instructions() if each == name][-1]


def python_of_anybody(user: int) -> str:
    """Returns an interpreter that another user may run."""
    new_enough = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))"
    for python in (os.path.realpath(sys.executable), "/usr/local/bin/python3", "/usr/bin/python3"):
        asked = subprocess.run(["env", python, "-c", new_enough], user=user, cwd="/", capture_output=True, check=False)
        if asked.returncode == 0:
            return python
    return missing("no Python from 3.11 on that another user may run")


class Image:
    """A directory in which the steps of the Dockerfile have run, and which only root may change."""

    def __init__(self, directory: Path) -> None:
        self.user, self.group = map(int, last("USER").split(":"))
        self._bin = directory / "python/bin"
        self.environment: dict[str, str] = {}
        subprocess.run([python_of_anybody(self.user), "-m", "venv", directory / "python"], check=True)
        # The ignored files: all but what the lines with a ! name.
        for name in re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE):
            (target := directory / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, target)
        for name, rest in instructions():
            here = re.sub(r"(?<![\w.])/(src|wheels)\b", rf"{directory}/\1", rest)
            if name == "FROM":
                self.environment = {"PATH": f"{self._bin}:{os.environ['PATH']}"}
            elif name == "ENV":
                self.environment |= dict(each.split("=") for each in shlex.split(here))
            elif name == "RUN":
                command = re.sub(r"--mount=\S+ ", "", here)
                more = {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "HOME"))}
                environment = {**more, **self.environment}
                subprocess.run(["sh", "-c", command], check=True, cwd=directory / "src", env=environment)

    @property
    def packages(self) -> Path:
        """Where its packages are."""
        return next(self._bin.parent.glob("lib/*/site-packages"))

    def start(self, *command: str, **environment: str) -> "subprocess.Popen[str]":
        """Starts a command as the image's user, who may write no byte into any file."""

        def write_nothing() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

        return subprocess.Popen(
            [self._bin / command[0], *command[1:]],
            user=self.user,
            group=self.group,
            extra_groups=[],
            cwd="/",
            env={**self.environment, "HOME": "/", "TMPDIR": "/proc", **environment},
            preexec_fn=write_nothing,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """A directory that any user may enter; those of pytest are root's."""
    if os.getuid():
        missing("only root can run a process as another user")
    with tempfile.TemporaryDirectory(prefix="delayq-image-") as made:
        os.chmod(made, 0o755)  # noqa: S103 - as the directories of an image
        yield Path(made)


@pytest.fixture(scope="module")
def image(directory: Path) -> Image:
    """The image."""
    return Image(directory)


def test_serve_and_transfer_run_in_the_image(
    image: Image, directory: Path, redis_server: PrivateRedis, client: redis.Redis
) -> None:
    """As a user without rights who writes nothing both start, are healthy, do their work, and end when told to."""
    tokens = directory / "tokens.json"
    added = subprocess.run(
        [
            sys.executable,
            "-c",
            "from celery_ext.cli import main; main()",
            "tokens",
            "add",
            "ada",
            "--action",
            "read",
            "--file",
            tokens,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert added.returncode == 0, added.stdout + added.stderr
    os.chown(tokens, 0, image.group)
    tokens.chmod(0o440)
    ports = [str(free_port()) for _ in range(2)]
    entry, check = json.loads(last("ENTRYPOINT")), json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    serve = [*json.loads(last("CMD")), "--port", ports[0]]
    transfer = ["transfer", "--metrics-port", ports[1]]
    known = {"DELAYQ_BROKER_URL": redis_server.url, "DELAYQ_TOKENS": str(tokens)}

    def is_healthy(port: str) -> bool:
        asked = image.start(*check, HEALTH_PORT=port)
        asked.communicate(timeout=60)
        return asked.returncode == 0

    assert not is_healthy(ports[0])
    started = [image.start(*entry, *command, **known) for command in (serve, transfer)]
    try:
        for port in ports:
            until(partial(is_healthy, port), what="it is healthy")
        with Connection(redis_server.url, transport=TRANSPORT) as connection, connection.SimpleQueue("orders") as queue:
            queue.put({}, headers={"eta": (datetime.now(UTC) + timedelta(seconds=0.2)).isoformat()})
        until(lambda: client.llen("orders") == 1, what="the message is transferred")
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        printed = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], printed


def test_the_image_has_what_is_pinned(image: Image) -> None:
    """The base has a version, and each package the one of the constraints."""
    bases = {rest.split()[0] for name, rest in instructions() if name == "FROM"}
    assert [re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base) is not None for base in bases] == [True]
    lines = (ROOT / ".ci/constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.replace("==", "-") for line in lines if not line.startswith("#")}
    found = {path.stem.lower().replace("_", "-") for path in image.packages.glob("*.dist-info")}
    assert [name for name in found if "celery" in name]
    others = ("kombu-delayq", "pip", "setuptools", "async-timeout")  # the last for Python before 3.11.3
    assert not [name for name in found - pinned if not name.startswith(others)]
