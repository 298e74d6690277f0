"""Many idle consumers of one kind: imports once, then forks a process for each."""

import importlib
import os
import signal
import sys


def main() -> None:
    """Runs ``consume`` of a module in so many processes, until one of them ends.

    Command line: MODULE NUMBER. What else a consumer imports, and should not import a hundred times, is named by the
    module's FORKED_WITH.
    """
    module = importlib.import_module(sys.argv[1])
    consume = module.consume
    for name in getattr(module, "FORKED_WITH", ()):
        importlib.import_module(name)
    for _ in range(int(sys.argv[2])):
        if os.fork() == 0:
            consume()
            os._exit(1)
    os.wait()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
