"""A small server of ``/metrics`` and ``/healthz`` in a process that does something else, such as a transfer worker."""

import socket
from collections.abc import Callable, Iterable
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from celery_ext.serve.metrics.collector import DelayqCollector, StoreSource
from celery_ext.serve.metrics.health import health_of

#: How long a client may take to send its request, and to read the answer, in s.
PATIENCE_S = 10.0


class Exporter:
    """Serves the metrics of a broker from threads of this process.

    Args:
        collector: Reads the metrics, over a connection of its own.
        host: Address to listen on.
        port: Port to listen on; 0 for any that is free.

    Raises:
        OSError: The address cannot be used, or the port is in use.
    """

    def __init__(self, collector: DelayqCollector, host: str, port: int) -> None:
        registry = CollectorRegistry()
        registry.register(collector)
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        kind = type("_FamilyServer", (_Server,), {"address_family": family})
        self._server: WSGIServer = make_server(host, port, _app(registry, collector.source), kind, _Handler)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Starts to answer."""
        Thread(target=self._server.serve_forever, name="delayq-metrics", daemon=True).start()

    def close(self) -> None:
        """Stops to answer, and frees the port."""
        self._server.shutdown()
        self._server.server_close()


def _app(registry: CollectorRegistry, source: StoreSource) -> Callable[..., Iterable[bytes]]:
    metrics = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == "/metrics":
            found: Iterable[bytes] = metrics(environ, start_response)
            return found
        if path != "/healthz" or method != "GET":
            return _answer(start_response, "404 Not Found", "GET /metrics or /healthz\n", "text/plain; charset=utf-8")
        needs_leader = "leader=required" in environ.get("QUERY_STRING", "").split("&")
        status, text = health_of(source).answer(needs_leader=needs_leader)
        named = "200 OK" if status == 200 else "503 Service Unavailable"
        return _answer(start_response, named, text, "application/json")

    return app


def _answer(start_response: Any, status: str, text: str, media_type: str) -> Iterable[bytes]:
    body = text.encode()
    start_response(status, [("Content-Type", media_type), ("Content-Length", str(len(body)))])
    return [body]


class _Server(ThreadingWSGIServer):
    def server_bind(self) -> None:
        """Binds without asking a name server for the name of this host, which may take long."""
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Logs nothing: one line for each scrape would hide the worker's own."""

    def address_string(self) -> str:
        """Returns the address of the client, without asking a name server for its name."""
        return str(self.client_address[0])
