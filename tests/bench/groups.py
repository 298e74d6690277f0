"""How the page groups its measures."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """Measures that belong together.

    Attributes:
        key: Its name; a chart may have it, too.
        title: Its heading.
        tables: The measures of each table. A table of one has a column for each size.
    """

    key: str
    title: str
    tables: tuple[tuple[str, ...], ...]


_LATE = ("min", "p50", "p99", "max", "begun")
GROUPS: tuple[Group, ...] = (
    Group(
        "enqueue",
        "Enqueue",
        (
            ("enqueue_one",),
            ("enqueue_bulk",),
            ("enqueue_one_cpu",),
            ("enqueue_bulk_cpu",),
            ("enqueue_one_reads",),
            ("enqueue_bulk_reads",),
        ),
    ),
    Group("memory", "Memory", (("kept",), ("worker",))),
    Group("transfer", "Transfer", (("transfer",), ("longest",))),
    Group("lateness", "Lateness", tuple(tuple(f"{key}_{which}" for which in _LATE) for key in ("poisson", "burst"))),
    Group("alone", "One worker process", (("alone",), ("alone_cpu",))),
    Group("cancel", "Cancel", (("cancel",), ("cancel_worst",))),
    Group("idle", "When nothing happens", (("idle_commands",), ("idle_cpu",), ("quiet_commands",), ("quiet_cpu",))),
    Group("path", "From offer to queue", (("offer_cpu",), ("transfer_cpu",), ("path_cpu",))),
    Group("script", "The scripts alone", (("script_offer",), ("script_transfer",), ("script_longest",))),
)
