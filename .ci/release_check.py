"""Says what is missing before a release, and builds what is handed out: ``make release-check``."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: ``pyproject.toml`` has these texts in place of names and addresses that only the publisher knows.
PLACEHOLDER = re.compile(r"example\.invalid|fill in")

#: What some apps with Celery on Redis install, from the requirements in their repositories. Ours has to go beside it.
APPS = {
    "Apache Superset": ("celery==5.5.2", "kombu==5.5.3", "redis==4.6.0", "click==8.2.1", "msgspec==0.19.0"),
    "Open edX": ("celery==5.6.2", "kombu==5.6.2", "redis==7.1.0", "click==8.3.1", "packaging==25.0"),
    "paperless-ngx": ("celery[redis]~=5.5.1", "redis[hiredis]~=5.2.1", "python-dateutil~=2.9.0"),
    "Weblate": ("celery[redis]==5.6.3", "redis==6.4.0", "hiredis==3.4.1", "packaging==26.3"),
    "Yamtrack": ("celery~=5.6.3", "redis[hiredis]~=8.1.0"),
}


def main() -> int:
    """Prints what is missing; if nothing is, builds and checks. Returns the exit code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = (ROOT / "kombu_delayq/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    version = found[1] if found else ""
    missing = [*complaints(project, (ROOT / "docs/changelog.md").read_text(encoding="utf-8"), version)]
    if _output("git", "status", "--porcelain"):
        missing.append("the working tree has changes that are not committed")
    if _output("git", "tag", "--list", f"v{version}"):
        missing.append(f"the tag v{version} is there already: raise __version__ in kombu_delayq/__init__.py")
    [wheel] = _build()
    missing += refused(wheel)
    for each in missing:
        print(f"missing: {each}")
    if missing:
        return 1
    print(f"{version} is ready: tag the commit v{version}, and hand out what is in dist/")
    return 0


def complaints(project: dict[str, Any], changelog: str, version: str) -> Iterator[str]:
    """Yields what a release lacks.

    Args:
        project: The table ``project`` of ``pyproject.toml``.
        changelog: Text of the changelog.
        version: The version to release.
    """
    for author in project.get("authors", []):
        if any(PLACEHOLDER.search(value) for value in author.values()):
            yield f"authors in pyproject.toml: {author}"
    for name, url in project.get("urls", {}).items():
        if PLACEHOLDER.search(url):
            yield f"address of {name} in pyproject.toml: {url}"
    first = re.search(r"^## (\S+) \((.+)\)$", changelog, re.MULTILINE)
    if first is None or first[1] != version:
        yield f"the first section of docs/changelog.md is not {version}"
    elif first[2] == "unreleased":
        yield f"the date of {version} in docs/changelog.md, in place of unreleased"


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
