"""What a committed job has in the far tier: the manifest, which names its files, and the names of everything."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256

#: Version of the format.
VERSION = 1
#: For how long Redis remembers a promotion that is not complete, in ms.
PROMOTION_MS = 30 * 86_400_000
HOUR_US = 3_600_000_000
#: How an hour is written, in UTC.
_HOUR = "%Y-%m-%dT%H"


def hour_of(us: int) -> str:
    """Returns the hour of a time in µs since the epoch, such as ``2026-11-22T22``, in UTC."""
    return datetime.fromtimestamp(us // HOUR_US * 3600, UTC).strftime(_HOUR)


def hour_us(hour: str) -> int:
    """Returns when an hour begins, µs since the epoch."""
    return int(datetime.strptime(hour, _HOUR).replace(tzinfo=UTC).timestamp()) * 1_000_000


def key_of(job: str) -> str:
    """Returns what stands for the name of a job in the names of files."""
    return sha256(job.encode()).hexdigest()[:32]


def manifest_path(job: str) -> str:
    """Returns where the manifest of a job is."""
    return f"manifests/{key_of(job)}.json"


def prepared_path(job: str, run: int) -> str:
    """Returns where a run of a job keeps its manifest until the run is chosen."""
    return f"prepared/{key_of(job)}-{run}.json"


def data_prefix(job: str, run: int) -> str:
    """Returns how the names of the files begin that a run of a job writes."""
    return f"{key_of(job)}-{run}-"


@dataclass(frozen=True)
class DataFile:
    """A Parquet file with rows of one hour.

    Attributes:
        path: Path below the base of the tier.
        hour: The hour in which the rows are due.
        rows: Number of rows.
        bytes: Size.
        due_from_us: Earliest due time, µs since the epoch.
        due_to_us: Latest due time.
        queues: Queues that the rows go to.
    """

    path: str
    hour: str
    rows: int
    bytes: int
    due_from_us: int
    due_to_us: int
    queues: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """The files of a committed job.

    Attributes:
        id: A UUID.
        job: Name of the job.
        run: Number of the run that wrote the files.
        base_ms: When the job began, ms since the epoch.
        horizon_ms: Rows that are due later than this after ``base_ms`` are in the files.
        files: The files, by hour.
    """

    id: str
    job: str
    run: int
    base_ms: float
    horizon_ms: float
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(file.rows for file in self.files)

    def to_json(self) -> bytes:
        """Returns the manifest as JSON."""
        return json.dumps({"version": VERSION, **asdict(self), "rows": self.rows}, indent=1).encode()

    @classmethod
    def parse(cls, content: bytes) -> "Manifest":
        """Reads a manifest.

        Raises:
            ValueError: It is none, or of a later version.
        """
        found = json.loads(content)
        if found["version"] > VERSION:
            raise ValueError(f"the manifest has version {found['version']}; this release reads up to {VERSION}")
        del found["version"], found["rows"]
        files = tuple(DataFile(**{**file, "queues": tuple(file["queues"])}) for file in found.pop("files"))
        return cls(files=files, **found)


@dataclass(frozen=True)
class Unit:
    """The rows of one hour in one manifest, which are promoted together.

    Attributes:
        hour: The hour.
        manifest: The manifest.
        files: Its files of this hour.
        is_begun: Whether a promotion has begun, so that Redis may have some of the rows.
    """

    hour: str
    manifest: Manifest
    files: tuple[DataFile, ...]
    is_begun: bool = False

    @property
    def job(self) -> str:
        """Name of the bulk job that promotes the rows."""
        return f"far/{self.manifest.id}/{self.hour}"

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(file.rows for file in self.files)


def units_of(manifest: Manifest) -> Sequence[Unit]:
    """Returns the units of a manifest, by hour."""
    by_hour: dict[str, list[DataFile]] = {}
    for file in manifest.files:
        by_hour.setdefault(file.hour, []).append(file)
    return [Unit(hour, manifest, tuple(files)) for hour, files in sorted(by_hour.items())]
