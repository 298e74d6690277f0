"""Says what is missing before a release, and builds what is handed out: ``make release-check``."""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from names import PLACEHOLDER, ROOT, linked, names, version

#: Pages that say that nothing is published, and how.
UNPUBLISHED = {
    "README.md": "not on PyPI yet",
    "docs/changelog.md": "Nothing is published yet",
    "docs/how-to/migrate.md": "not on PyPI yet",
    "docs/index.md": "Not on PyPI yet",
}

#: What some apps with Celery on Redis install, from the requirements in their repositories. Ours has to go beside it.
APPS = {
    "Apache Superset": ("celery==5.5.2", "kombu==5.5.3", "redis==4.6.0", "click==8.2.1", "msgspec==0.19.0"),
    "Open edX": ("celery==5.6.2", "kombu==5.6.2", "redis==7.1.0", "click==8.3.1", "packaging==25.0"),
    "paperless-ngx": ("celery[redis]~=5.5.1", "redis[hiredis]~=5.2.1", "python-dateutil~=2.9.0"),
    "Weblate": ("celery[redis]==5.6.3", "redis==6.4.0", "hiredis==3.4.1", "packaging==26.3"),
    "Yamtrack": ("celery~=5.6.3", "redis[hiredis]~=8.1.0"),
}


def main() -> int:
    """Builds, checks, and prints what is missing. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", help="The commit has this tag, which has to be that of the version.")
    parser.add_argument(
        "--notes", type=Path, help="Write the notes of the release, from the changelog, into this file."
    )
    options = parser.parse_args()
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in UNPUBLISHED}
    missing = [*complaints(names(), pages, version()), *_complaints_of_git(f"v{version()}", options.tag)]
    [wheel] = _build()
    missing += refused(wheel)
    for each in missing:
        print(f"missing: {each}")
    if options.notes:
        text = notes(pages["docs/changelog.md"], version())
        options.notes.write_text(linked(text, "docs/", names()["repository"], f"v{version()}"), encoding="utf-8")
    if missing:
        return 1
    print(f"{version()} is ready: what is handed out is in dist/" + ("" if options.tag else f"; tag v{version()}"))
    return 0


def complaints(known: dict[str, str], pages: dict[str, str], release: str) -> Iterator[str]:
    """Yields what the files lack for a release.

    Args:
        known: The names that the publisher fills in.
        pages: Text of each page of ``UNPUBLISHED``.
        release: The version to release.
    """
    for name, value in known.items():
        if PLACEHOLDER.search(value):
            yield f"{name} in [tool.names] of pyproject.toml: {value}"
    for page, text in UNPUBLISHED.items():
        if text in pages[page]:
            yield f"how to install it by name, in place of “{text}” in {page}"
    first = re.search(r"^## (\S+) \((.+)\)$", pages["docs/changelog.md"], re.MULTILINE)
    if first is None or first[1] != release:
        yield f"the first section of docs/changelog.md is not {release}"
    elif first[2] == "unreleased":
        yield f"the date of {release} in docs/changelog.md, in place of unreleased"


def notes(changelog: str, release: str) -> str:
    """Returns the section of a release in the changelog, without its heading.

    Raises:
        ValueError: If the changelog has no such section.
    """
    found = re.search(rf"^## {re.escape(release)} \(.*\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    if found is None:
        raise ValueError(f"docs/changelog.md has no section {release}")
    return found[1].strip() + "\n"


def _complaints_of_git(wanted: str, tag: str | None) -> Iterator[str]:
    """Yields what the repository lacks for a release that has a tag, or is to get one."""
    if _output("git", "status", "--porcelain"):
        yield "the working tree has changes that are not committed"
    if tag is None and _output("git", "tag", "--list", wanted):
        yield f"the tag {wanted} is there already: raise __version__ in kombu_delayq/__init__.py"
    if tag not in (None, wanted):
        yield f"the tag {tag} is not that of __version__ in kombu_delayq/__init__.py, which is {wanted}"


def refused(wheel: Path) -> Iterator[str]:
    """Yields the apps of ``APPS`` beside which pip cannot install a wheel."""
    install = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", str(wheel)]
    for app, pins in APPS.items():
        found = subprocess.run([*install, *pins], capture_output=True, text=True, check=False)
        if found.returncode:
            yield f"pip cannot install the wheel beside {', '.join(pins)} of {app}:\n{found.stderr.strip()}"


def _build() -> list[Path]:
    """Builds what is handed out, and checks it. Returns the wheel."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    _run(sys.executable, "-m", "build")
    _run(sys.executable, "-m", "twine", "check", "--strict", *sorted(map(str, dist.iterdir())))
    wheels = list(dist.glob("*.whl"))
    _run(str(Path(sys.executable).with_name("check-wheel-contents")), *map(str, wheels))
    return wheels


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
