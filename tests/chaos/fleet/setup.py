"""What a process of the fleet is told: its name, its broker, how it consumes, and where its ledger is."""

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from kombu_delayq.options import NAMES

#: The environment variable with the setup as JSON.
VARIABLE = "CHAOS_SETUP"
OURS, STOCK = "ours", "stock"
#: Queues by who consumes them. A loss in the first two has one suspect.
QUEUES = {OURS: "chaos.ours", STOCK: "chaos.stock", "mixed": "chaos.mixed"}
#: The periodic entry of the fleet, and its period in ms.
TICK, TICK_MS = "tick", 1000
#: Queues of ours in a cluster: by their slots, each of three primaries has one.
SPREAD = ("chaos.ours.1", "chaos.ours.2", "chaos.ours.3")

#: Limits of keyed tasks, each with how many of a key run at once; how many keys all have; how long a task takes, in s.
LIMITS = {"one": 1, "two": 2, "three": 3}
KEYS, KEYED_S = 50, 0.05
#: Kinds of tasks that only our workers run rightly.
OURS_ONLY = {"chain", "keyed", "once", "letter"}
#: Queue of the dead letters, and how ids of replayed tasks go on after the id of the task that failed.
LETTERS, REPLAYED = "chaos.letters", "~k"
#: So many tasks of a publisher, one after the other, have one waiting key.
ALIKE = 4


def key_of(task_id: str) -> str:
    """Returns the key of a keyed task, which its id says."""
    number = int(task_id.rpartition(".")[2]) % KEYS
    return f"{list(LIMITS)[number % len(LIMITS)]}:{number}"


def waiting_key_of(task_id: str) -> str:
    """Returns the waiting key of a task of which one waits, which its id says."""
    publisher, _, number = task_id.rpartition(".")
    return f"once-{publisher}-{int(number) // ALIKE}"


def owner_of(queue: str) -> str:
    """Returns who consumes a queue: ``ours``, ``stock``, ``mixed``, or an unknown queue's name."""
    return OURS if queue in SPREAD else next((by for by, name in QUEUES.items() if name == queue), queue)


@dataclass(frozen=True)
class Setup:
    """The setup of one process.

    Attributes:
        name: Name of the member of the fleet.
        by: Whose transport it uses, ``ours`` or ``stock``.
        broker: Broker URL.
        ledger: Directory of the ledger.
        transport_options: ``broker_transport_options``, those of ours too.
        seed: Seed of the process's own choices.
        incarnation: How often the member was started before.
        rate: Tasks per second that a publisher publishes at most.
        backlog: Messages in a queue above which a publisher waits.
        kinds: Kinds of tasks that a publisher publishes.
        audiences: Keys of ``QUEUES`` into which a publisher publishes.
        queues: Queues into which a publisher publishes; by default those of its audiences.
        clock_off_s: By how much the clock is off by which the process tells what is due late.
        ticks_to: Queue of the periodic entry that workers arm; empty for none.
    """

    name: str
    by: str
    broker: str
    ledger: str
    transport_options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    incarnation: int = 0
    rate: float = 200.0
    backlog: int = 2000
    kinds: tuple[str, ...] = ()
    audiences: tuple[str, ...] = (OURS,)
    queues: tuple[str, ...] = ()
    clock_off_s: float = 0.0
    ticks_to: str = ""

    @classmethod
    def of_environment(cls) -> "Setup":
        """Reads the setup of this process."""
        return cls(**json.loads(os.environ[VARIABLE]))

    def environment(self) -> dict[str, str]:
        """Returns the variable for a process with this setup."""
        return {VARIABLE: json.dumps(asdict(self))}

    def options_in_use(self) -> dict[str, Any]:
        """Returns the transport options that the transport in use has."""
        given = self.transport_options
        return given if self.by == OURS else {name: value for name, value in given.items() if name not in NAMES}
