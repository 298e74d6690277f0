"""Links from page to page. They are relative, so that they hold behind a proxy that strips a prefix unknown to us."""

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

#: A name that may stand in a path: no slash, which some servers decode, and no dots alone, which browsers take away.
_IN_PATH = re.compile(r"(?!\.{1,2}\Z)[^/\\\x00-\x1f]+", re.ASCII)


class Links:
    """Makes the links of one page.

    Args:
        path: Path of the page below the mount, as the browser asked for it, such as ``/queues/mail``.
    """

    def __init__(self, path: str) -> None:
        self.base = "../" * max(path.count("/") - 1, 0) or "./"

    def queue(self, name: str, **query: str) -> str:
        """Returns the link to a queue."""
        return self._named("queues", name, query)

    def task(self, task_id: str, **query: str) -> str:
        """Returns the link to a task."""
        return self._named("tasks", task_id, query, by="id")

    def letters(self, queue: str, **query: str) -> str:
        """Returns the link to the dead letters of a queue."""
        return self._named("dead-letters", queue, query)

    def to(self, path: str, **query: str) -> str:
        """Returns the link to a path below the mount."""
        return f"{self.base}{path}{_query(query)}"

    def _named(self, folder: str, name: str, query: Mapping[str, str], by: str = "name") -> str:
        if is_in_path(name):
            return f"{self.base}{folder}/{_quoted(name)}{_query(query)}"
        return f"{self.base}{folder}{_query({by: name, **query})}"


def is_in_path(name: str) -> bool:
    """Whether a name stands in the path of its page. Others are in the query."""
    return _IN_PATH.fullmatch(name) is not None


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="surrogateescape")


def _query(query: Mapping[str, str]) -> str:
    given = {name: value for name, value in query.items() if value}
    return f"?{urlencode(given, errors='surrogateescape')}" if given else ""
