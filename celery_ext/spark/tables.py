"""Tables of the user's, whose rows wait there until their hour is near: what an hour has, and its removal."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql.functions import expr
from pyspark.sql.types import DataType, MapType, StructType, TimestampType, VariantType

from celery_ext.spark.errors import InvalidColumns, InvalidSparkOption, TableUnavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR = timedelta(hours=1)
#: How Spark names the folder of rows whose hour is null.
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Window:
    """The rows of one hour.

    Attributes:
        rows: The rows, the same however often they are read.
        remove: Removes these rows from the table, and no others.
        is_there: Whether all of them can still be read.
    """

    rows: DataFrame
    remove: Callable[[], None]
    is_there: Callable[[], bool] = lambda: True


class Table(Protocol):
    """A table with rows that are due later. Hours are datetimes in UTC."""

    def hours(self, until: datetime) -> list[datetime]:
        """Returns the hours that begin before a time and may have rows, the earliest first."""

    def window(self, hour: datetime) -> Window | None:
        """Returns the rows of an hour as they are now; None if there are none."""

    def wrong(self) -> dict[str, Exception]:
        """Returns an error for each folder, by its name, that ``hours`` has found and that is of no hour."""


def open_table(spark: SparkSession, table: str) -> Table:
    """Opens a table.

    Args:
        spark: The session.
        table: A folder, by its path or URL, that has Parquet files in folders ``hour=…`` or is a table of Delta Lake;
            or the name of a table for ``MERGE``, such as one of Delta Lake or Iceberg.

    Raises:
        TableUnavailable: There is no such folder, or nothing in it.
        InvalidSparkOption: Spark Connect cannot remove files.
    """
    if "/" not in table or "`" in table:
        return _NamedTable(spark, table)
    folders = _HourFolders(spark, table)
    return _NamedTable(spark, f"delta.`{table}`") if folders.has_delta_log() else folders


class _HourFolders:
    """Plain Parquet: a folder ``hour=2026-11-22T22``, in UTC, for each hour."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            raise InvalidSparkOption(
                "Spark Connect cannot remove Parquet files: keep the rows in a table that has MERGE"
            )
        self._spark = spark
        self._path = jvm.org.apache.hadoop.fs.Path(path)
        self._at = jvm.org.apache.hadoop.fs.Path
        self._files = self._path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        if not self._files.exists(self._path):
            raise TableUnavailable(f"the folder {path} is missing. Is its disk mounted?")

    def has_delta_log(self) -> bool:
        """Whether the folder is a table of Delta Lake."""
        return bool(self._files.exists(self._at(self._path, "_delta_log")))

    def hours(self, until: datetime) -> list[datetime]:
        self._folders: dict[datetime, Any] = {}
        self._wrong: dict[str, Exception] = {}
        for status in self._files.listStatus(self._path):
            folder = status.getPath()
            if status.isDirectory() and folder.getName().startswith("hour="):
                try:
                    self._folders[_hour_of(folder.toString())] = folder
                except TableUnavailable as error:
                    self._wrong[folder.getName()] = error
        if not self._folders and not self._wrong:
            raise TableUnavailable(
                f"the folder {self._path.toString()} has no folder hour=…, such as hour=2026-11-22T22"
            )
        return sorted(hour for hour in self._folders if hour < until)

    def wrong(self) -> dict[str, Exception]:
        return self._wrong

    def window(self, hour: datetime) -> Window | None:
        folder = self._folders[hour]
        if not self._files.exists(folder):  # another promotion has removed it
            return None
        found = [status for status in self._files.listStatus(folder) if not _is_hidden(status.getPath().getName())]
        if any(status.isDirectory() for status in found):
            raise TableUnavailable(
                f"the folder {folder.toString()} has folders within the hour, whose rows are not sent; write them "
                "again, partitioned by hour alone, and delete these folders"
            )
        files = [status.getPath() for status in found]
        if not files:
            return None

        def remove() -> None:
            for file in files:
                self._files.delete(file, False)
            # Rows may still come to an hour that is not over: a writer counts on its folder.
            if hour + HOUR < datetime.now(UTC) and not len(self._files.listStatus(folder)):
                with suppress(Py4JJavaError):  # a file came at this moment
                    self._files.delete(folder, False)

        def is_there() -> bool:
            return all(self._files.exists(file) for file in files)

        try:
            # Without a base path Spark does not make a column of the folder's name.
            reader = self._spark.read.option("mergeSchema", "true")
            return Window(reader.parquet(*(_literal(file.toString()) for file in files)), remove, is_there)
        except Exception:
            if is_there():
                raise
            return self.window(hour)  # another promotion has removed files meanwhile


class _NamedTable:
    """A table that removes rows by ``MERGE``."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name

    def hours(self, until: datetime) -> list[datetime]:
        rows = self._rows()
        check_eta(rows.schema)
        last = -(-until.timestamp() // 3600)
        found = rows.where(f"eta < timestamp_seconds({last * 3600:.0f})").select(
            expr("unix_seconds(eta) div 3600 AS h")
        )
        return sorted(datetime.fromtimestamp(row.h * 3600, UTC) for row in found.distinct().collect())

    def window(self, hour: datetime) -> Window | None:
        begin = int(hour.timestamp())
        within = "{0}eta >= timestamp_seconds({1}) AND {0}eta < timestamp_seconds({2})"
        # The rows are kept: read again, the table may have others.
        rows = self._rows().where(within.format("", begin, begin + 3600)).localCheckpoint()
        names = [f"`{field.name}`" for field in rows.schema if _is_comparable(field.dataType)]
        same = " AND ".join(f"t.{name} <=> s.{name}" for name in names)

        def remove() -> None:
            view = f"promoted_{uuid4().hex}"
            rows.select(*names).distinct().createOrReplaceTempView(view)
            try:
                self._spark.sql(
                    f"MERGE INTO {self._name} t USING {view} s "
                    f"ON {within.format('t.', begin, begin + 3600)} AND {same} WHEN MATCHED THEN DELETE"
                )
            except Exception as error:  # of whatever table it is: another commit is in the way, mostly
                raise TableUnavailable(
                    f"the rows of the hour {hour:%Y-%m-%dT%H} were sent, and could not be removed from {self._name}. "
                    f"The next promotion does not send them again, and removes them: {_first_line(error)}"
                ) from None
            finally:
                self._spark.catalog.dropTempView(view)

        return Window(rows, remove)

    def wrong(self) -> dict[str, Exception]:
        return {}

    def _rows(self) -> DataFrame:
        if "`" not in self._name:
            self._spark.catalog.refreshTable(self._name)  # a catalog may show an earlier state for some seconds
        return self._spark.table(self._name)


def check_eta(schema: StructType) -> None:
    """Checks that rows have a due time.

    Raises:
        InvalidColumns: They have no column ``eta``, or it is not a timestamp.
    """
    kinds = [field.dataType for field in schema if field.name.lower() == "eta"]
    if [type(kind) for kind in kinds] != [TimestampType]:
        found = kinds[0].simpleString() if kinds else "missing"
        raise InvalidColumns(f"column eta is {found}; rows that are to be promoted have it as a timestamp with a zone")


def _hour_of(folder: str) -> datetime:
    text = unquote(folder.rpartition("/hour=")[2])
    if text == _NULL:
        raise TableUnavailable(
            f"the rows in the folder {folder} have no eta, so they are never sent: delete the folder, write those that "
            "are needed with an eta, and leave rows without one out"
        )
    try:
        hour = datetime.fromisoformat(text)
    except ValueError:
        raise TableUnavailable(f"the folder {folder} is not of an hour in UTC, such as hour=2026-11-22T22") from None
    return hour.replace(tzinfo=UTC) if hour.tzinfo is None else hour.astimezone(UTC)


def _is_hidden(name: str) -> bool:
    """Whether Spark does not read a file or folder."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _literal(path: str) -> str:
    """Returns a path for Spark, which takes it for a pattern."""
    return re.sub(r"[{}\[\]*?\\]", r"\\\g<0>", path)


def _first_line(error: Exception) -> str:
    """Returns what an error says without the trace of Java."""
    text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return str(text).strip().partition("\n")[0]


def _is_comparable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_comparable(field.dataType) for field in kind)
    inner = getattr(kind, "elementType", None)
    return _is_comparable(inner) if inner is not None else not isinstance(kind, (MapType, VariantType))
