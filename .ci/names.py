"""The names that only a publisher knows, ``[tool.names]`` in ``pyproject.toml``, and all that follows from them."""

import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: A name that is not filled in has one of these texts. No other file has one.
PLACEHOLDER = re.compile(r"example\.invalid|fill in")
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s]+)(?=\))")


def names() -> dict[str, str]:
    """Returns author, contact and repository."""
    found: dict[str, str] = tomllib.loads(_read("pyproject.toml"))["tool"]["names"]
    return found


def version() -> str:
    """Returns the version, from the only place that has it."""
    found = re.search(r'^__version__ = "(.+)"$', _read("kombu_delayq/__init__.py"), re.MULTILINE)
    return found[1] if found else ""


def metadata() -> dict[str, Any]:
    """Returns the fields of the package that follow from the names: authors, addresses and the README."""
    known, tag = names(), f"v{version()}"
    repository = known["repository"]
    text = linked(_read("README.md"), "", known["repository"], tag)
    return {
        "authors": [{"name": known["author"], "email": known["contact"]}],
        "urls": {
            "Repository": repository,
            "Documentation": f"{repository}/blob/{tag}/docs/index.md",
            "Changelog": f"{repository}/blob/{tag}/docs/changelog.md",
            "Issues": f"{repository}/issues",
            "Security": f"{repository}/security/policy",
        },
        "readme": {"content-type": "text/markdown", "text": text},
    }


def linked(text: str, directory: str, repository: str, tag: str) -> str:
    """Returns Markdown whose links to files lead into the repository, as it is at a tag.

    Args:
        text: Markdown, with links that are relative to ``directory``.
        directory: Where the page stands in the repository: empty, or with a slash at its end.
        repository: Address of the repository.
        tag: The tag.
    """

    def absolute(match: re.Match[str]) -> str:
        kind = "raw" if match[1].endswith(".png") else "blob"
        return f"{repository}/{kind}/{tag}/{posixpath.normpath(directory + match[1])}"

    return _LINK.sub(absolute, text)


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
