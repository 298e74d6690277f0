"""Callers in processes of their own, each of which is killed between two steps of an operation."""

import json
import subprocess
import sys
from collections.abc import Mapping

from celery_ext.demo.private_redis import PrivateRedis

_PROGRAM = """
import json, os, signal, sys
from celery_ext.journal.journal import Journal
from celery_ext.waiting import by_id
from kombu_delayq.store.lookup import Lookup
from celery_ext.journal.promotion import Promotion
from tests.support.journal.stores import journaled

def killed(operation, identity, due_ms, where):
    when, name, *times = where.split()
    owner = next(owner for owner in (Journal, Promotion, Lookup) if hasattr(owner, name))
    real, left = getattr(owner, name), int(times[0]) if times else 1

    def dies(*args, **keywords):
        nonlocal left
        left -= 1
        if not left and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = real(*args, **keywords)
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, name, dies)
    store = journaled(port, options)
    given = (due_ms,) if operation == "reschedule" else ()
    list(getattr(by_id, operation)(store, [identity], *given))

port, options, due_ms = int(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
survivors = []
for identity in due_ms:
    operation, _, where = identity.split(": ")
    child = os.fork()
    if not child:
        killed(operation, identity, due_ms[identity], where)
        os._exit(0)
    if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        survivors.append(identity)
print(json.dumps(survivors))
"""


def die_while_calling(server: PrivateRedis, options: Mapping[str, object], due_ms: Mapping[str, float]) -> None:
    """Starts one caller for each message, which dies by SIGKILL at its place, and checks that it got there.

    Args:
        server: Their Redis.
        options: Their transport options.
        due_ms: New due time by id of the message. The id names operation, message and place, such as
            ``reschedule: far: after claim_rows 2``: after the second call.
    """
    args = [sys.executable, "-c", _PROGRAM, str(server.port), json.dumps(options), json.dumps(due_ms)]
    done = subprocess.run(args, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [], done.stderr
