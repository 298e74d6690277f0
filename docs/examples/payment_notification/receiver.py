"""The merchants, as one HTTP server: ``python receiver.py [PORT]``.

``POST /NAME?refuse=3`` says ``fail`` three times to each payment, and then ``success``. Without ``refuse`` it never
says ``success``.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit


class Call(NamedTuple):
    """A notification that came in.

    Attributes:
        payment: The payment that it is about.
        merchant: Who was called.
        number: Which call about this payment it is, counted from 1.
        answer: What the merchant said.
        at: When, in s by the monotonic clock.
    """

    payment: str
    merchant: str
    number: int
    answer: str
    at: float


class Receiver(ThreadingHTTPServer):
    """Says no as often as the URL asks for.

    Args:
        port: Where it listens; 0 for any that is free.
        tell: Called with each call that came in.
    """

    def __init__(self, port: int, tell: Callable[[Call], None]) -> None:
        super().__init__(("127.0.0.1", port), Merchant)
        self._tell = tell
        self._count: defaultdict[str, int] = defaultdict(int)
        self._lock = Lock()

    def url(self, merchant: str, refuse: int | None = None) -> str:
        """Returns the address of a merchant who says no to a payment ``refuse`` times; None for always."""
        address = f"http://127.0.0.1:{self.server_port}/{merchant}"
        return address if refuse is None else f"{address}?refuse={refuse}"

    def called(self, payment: str, merchant: str, refuse: float) -> str:
        """Counts a call. Returns the answer."""
        with self._lock:
            self._count[payment] += 1
            number = self._count[payment]
            answer = "success" if number > refuse else "fail"
            self._tell(Call(payment, merchant, number, answer, time.monotonic()))
        return answer


class Merchant(BaseHTTPRequestHandler):
    """Answers a call."""

    server: Receiver

    def do_POST(self) -> None:
        """Reads the notification and says ``success`` or ``fail``."""
        address = urlsplit(self.path)
        refuse = float(parse_qs(address.query).get("refuse", ["inf"])[0])
        notification = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = self.server.called(notification["payment"], address.path.strip("/"), refuse).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: object) -> None:
        """Says nothing: who runs the receiver says what there is to say."""


def main() -> None:
    """Serves until Ctrl-C, and prints each call."""
    receiver = Receiver(int(sys.argv[1]) if len(sys.argv) > 1 else 8080, say)
    print(f"merchants at {receiver.url('NAME')}", flush=True)
    with suppress(KeyboardInterrupt):
        receiver.serve_forever()


def say(call: Call) -> None:
    """Prints a call."""
    print(f"{time.strftime('%X')}  {call.payment}: call {call.number} to {call.merchant}: {call.answer}", flush=True)


if __name__ == "__main__":
    main()
