"""Many idle consumers of one kind: imports once, then forks a process for each."""

import importlib
import os
import signal
import sys


def main() -> None:
    """Runs ``consume`` of a module in so many processes, until one of them ends.

    Command line: MODULE NUMBER.
    """
    consume = importlib.import_module(sys.argv[1]).consume
    for _ in range(int(sys.argv[2])):
        if os.fork() == 0:
            consume()
            os._exit(1)
    os.wait()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
