"""A private RabbitMQ node, from Debian's package."""

import signal
from functools import partial
from pathlib import Path
from shutil import which

import amqp

from celery_ext.demo.private_redis import free_port
from tests.bench.daemon import Daemon, connected, knock

#: Where Debian keeps its programs; those on the PATH are for the node of the system.
PROGRAMS = Path("/usr/lib/rabbitmq/bin")
LIBRARIES = Path("/usr/lib/rabbitmq/lib")
#: User that runs it if this process is root's.
USER = "rabbitmq"
#: Name of the directory for its files.
DATA = "data"
#: Erlang expression for the memory of the node.
MEMORY = "[garbage_collect(Each) || Each <- processes()], erlang:memory(total)."


class RabbitServer:
    """A node with default settings, without plugins, that listens on this machine only."""

    def __init__(self) -> None:
        self._daemon = Daemon("rabbitmq", USER, signal.SIGKILL)
        self._port = free_port()

    @property
    def url(self) -> str:
        """Its address, with the user and the virtual host that every node has at first."""
        return f"amqp://guest:guest@127.0.0.1:{self._port}//"

    def start(self) -> None:
        """Starts it, with an ``epmd`` of its own, by which the node knows its name."""
        home, names = self._daemon.directory, free_port()
        config, plugins = home / "rabbitmq.conf", home / "enabled_plugins"
        config.write_text(f"listeners.tcp.default = 127.0.0.1:{self._port}\n")
        plugins.write_text("[].\n")
        self._daemon.settings(
            {
                "ERL_EPMD_PORT": str(names),
                "ERL_EPMD_ADDRESS": "127.0.0.1",
                "RABBITMQ_CONF_ENV_FILE": "/dev/null",
                "RABBITMQ_CONFIG_FILE": str(config),
                "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
                "RABBITMQ_NODENAME": "bench@localhost",
                "RABBITMQ_DIST_PORT": str(free_port()),
                "RABBITMQ_MNESIA_BASE": str(home / DATA),
                "RABBITMQ_LOG_BASE": str(home / "logs"),
                "RABBITMQ_PID_FILE": str(home / "pid"),
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
                "RUNNING_UNDER_SYSTEMD": "true",  # no shell between the node and us
            }
        )
        self._daemon.start(["epmd", "-port", str(names), "-address", "127.0.0.1"], partial(knock, names))
        self._daemon.start([str(PROGRAMS / "rabbitmq-server")], self._connect)

    def close(self) -> None:
        """Ends the node and its ``epmd``."""
        self._daemon.close()

    def kept_bytes(self) -> int:
        """Returns the memory of the node, after a collection of its garbage, and the size of its files."""
        output = self._daemon.run([str(PROGRAMS / "rabbitmqctl"), "--quiet", "eval", MEMORY])
        return int(output) + self._daemon.file_bytes(DATA)

    def cpu_s(self) -> float:
        """Returns the CPU time of its processes."""
        return self._daemon.cpu_s()

    def commands(self) -> int | None:
        """Returns None: RabbitMQ does not count commands."""
        return None

    def reads(self) -> int | None:
        """Returns None: RabbitMQ does not count reads."""
        return None

    def connections(self) -> int:
        """Returns how many clients are connected."""
        return connected(self._port)

    def watch(self) -> None:
        """Does nothing."""

    def longest_ms(self) -> float | None:
        """Returns None: no connection waits for another's command."""
        return None

    def _connect(self) -> None:
        with amqp.Connection(f"127.0.0.1:{self._port}", connect_timeout=5):
            pass


def rabbitmq_version() -> str:
    """Returns the version of the server that is installed."""
    [found] = LIBRARIES.glob("rabbitmq_server-*")
    return found.name.partition("-")[2]


def no_rabbitmq() -> str | None:
    """Returns None if RabbitMQ is installed, else a line that says so."""
    if (PROGRAMS / "rabbitmq-server").exists() and which("epmd"):
        return None
    return "RabbitMQ is not installed (Debian: apt install rabbitmq-server)"
