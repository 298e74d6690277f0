"""The file systems that a far tier may be on: a URL becomes a file system of pyarrow."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import uuid4

from pyarrow import ArrowInvalid, ArrowNotImplementedError, NativeFile, fs

from celery_ext.spark.errors import FarTierUnavailable, InvalidSparkOption
from celery_ext.spark.option_parsers import far_url

#: Kinds of file systems where a file is there as a whole or not at all, and that have no folders.
_OBJECT_STORES = frozenset(("s3", "gcs", "abfs"))
#: How many files are read, or deleted, at the same time.
_AT_ONCE = 16


class Found(NamedTuple):
    """A file in a listing.

    Attributes:
        path: Path below the base of the tier.
        modified_s: When the file was written, s since the epoch.
        size: Bytes.
    """

    path: str
    modified_s: float
    size: int


class Files:
    """The files below a URL. Pickled as the URL; each process opens the file system itself.

    Args:
        url: As ``far_url`` returns it.

    Raises of the methods: FarTierUnavailable, OSError.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url}

    def read(self, path: str) -> bytes | None:
        """Returns the content of a file; None if there is none."""
        try:
            with self._fs.open_input_stream(self._at(path)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def read_all(self, paths: Iterable[str]) -> list[bytes | None]:
        """Returns the contents of files, several at a time."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self.read, paths))

    def put(self, path: str, content: bytes) -> None:
        """Writes a file so that readers see all of it or nothing. A file of the same name is replaced."""
        if self._is_object_store:
            with self._fs.open_output_stream(self._at(path)) as stream:
                stream.write(content)
            return
        unseen = str(PurePosixPath(path).with_name(f".{uuid4()}"))
        with self.create(unseen) as stream:
            stream.write(content)
        if isinstance(self._fs, fs.LocalFileSystem):
            _sync(self._at(unseen))
        try:
            self._fs.move(self._at(unseen), self._at(path))
        except OSError:  # HDFS keeps a file that is there; those who write the same name write the same content
            self.delete([unseen])
            if self.read(path) is None:
                raise

    @contextmanager
    def create(self, path: str) -> Iterator[NativeFile]:
        """Opens a new file to write. Readers may see it half written."""
        if not self._is_object_store:
            self._fs.create_dir(self._at(path).rpartition("/")[0], recursive=True)
        with self._fs.open_output_stream(self._at(path)) as stream:
            yield stream

    def sync(self, path: str) -> None:
        """Waits until a file of a local disk would survive a loss of power."""
        if isinstance(self._fs, fs.LocalFileSystem):
            _sync(self._at(path))

    def open(self, path: str) -> NativeFile:
        """Opens a file to read anywhere in it. Raises FileNotFoundError if there is none."""
        return self._fs.open_input_file(self._at(path))

    def list(self, folder: str) -> list[Found]:
        """Returns the files below a folder, at any depth, sorted by path; none if there is no such folder."""
        selector = fs.FileSelector(self._at(folder), recursive=True, allow_not_found=True)
        start = len(self._base) + 1
        found = [
            Found(info.path[start:], info.mtime.timestamp() if info.mtime else 0.0, info.size or 0)
            for info in self._fs.get_file_info(selector)
            if info.type == fs.FileType.File and not info.base_name.startswith(".")
        ]
        return sorted(found)

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes files, those that are there."""

        def delete(path: str) -> None:
            with suppress(FileNotFoundError):
                self._fs.delete_file(self._at(path))

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(delete, paths))

    def remove_empty_folder(self, folder: str) -> None:
        """Removes a folder of a local disk if nothing is in it."""
        if isinstance(self._fs, fs.LocalFileSystem):
            with suppress(OSError):  # it is not empty, or gone
                os.rmdir(self._at(folder))

    @cached_property
    def _place(self) -> tuple[fs.FileSystem, str]:
        if self.url.startswith("/"):
            return fs.LocalFileSystem(), self.url
        try:
            found, base = fs.FileSystem.from_uri(self.url)
        except (ArrowInvalid, ArrowNotImplementedError, OSError) as error:
            raise FarTierUnavailable(f"the far tier {self.url} cannot be opened: {error}") from None
        return found, base.rstrip("/")

    @property
    def _fs(self) -> fs.FileSystem:
        return self._place[0]

    @property
    def _base(self) -> str:
        return "" if self._place[1] == "/" else self._place[1]

    @property
    def _is_object_store(self) -> bool:
        return self._fs.type_name in _OBJECT_STORES

    def _at(self, path: str) -> str:
        return f"{self._base}/{path}"


def check(url: str) -> Files:
    """Returns the files below the URL that a caller gives.

    Raises:
        InvalidSparkOption: There is no such file system, or the URL has a password.
    """
    try:
        return Files(far_url(url))
    except ValueError as reason:
        raise InvalidSparkOption(f"the path of the far tier {reason}") from None


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
