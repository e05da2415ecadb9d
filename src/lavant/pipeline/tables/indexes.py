"""Index files: made once in the driver, brought to the executors, mapped and kept open by their Python workers.

An index is one matcher over all subscriptions, or one for each of several groups of them. Its files are named by their
content, or by the identity and version of the store they come from, so that equal subscriptions have equal files. On
a local master tasks open the driver's files; elsewhere Spark ships them, which needs no disk that machines share.
"""

from __future__ import annotations

import atexit
import gc
import mmap
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, LongType

from lavant.broker.matching import MATCHERS, PlainMatcher
from lavant.broker.matching.plain.table import Dimension
from lavant.core.errors import MissingComponent

INDEXES_MAX = 32
"""Kept on the driver's disk; beyond this the least recently used is deleted, unless it is registered."""
OPEN_MAX = 16
"""Kept open by a Python worker."""
NUMBERS = ArrayType(LongType(), containsNull=False)
"""The ids of a store. Spark copies a list faster if none of its items can be null."""


class TableIndex(NamedTuple):
    """Where the index of some subscriptions is, and what a plan must know of it."""

    scheme: str
    groups: tuple[str, ...]
    """Names of the matchers' files."""
    ids: str | None
    """Name of the file with the ids, by number; None where the numbers are the ids."""
    lists: ArrayType
    """The type of a row's ids."""
    dimensions: frozenset[Dimension] | None
    """What filters compare; None if they are encrypted."""
    directory: str | None = None
    """Where the files are; None if Spark ships them."""


_indexes: OrderedDict[str, TableIndex] = OrderedDict()
_shipped: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
_registered: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
"""Files of indexes that have names in SQL, by session."""


def known_index(key: str) -> TableIndex | None:
    """The index that was made for this key before."""
    if key in _indexes:
        _indexes.move_to_end(key)
    return _indexes.get(key)


def keep_index(key: str, matchers: Sequence[Any], *, ids: pa.Array | None, lists: ArrayType) -> TableIndex:
    """Write the files of a new index."""
    groups = []
    for number, matcher in enumerate(matchers):
        groups.append(f"lavant-{key}-{number}.index")
        (_directory() / groups[-1]).write_bytes(matcher.to_bytes())
    if ids is not None:
        table = pa.table({"id": ids})
        with (
            pa.OSFile(str(_directory() / f"lavant-{key}.ids"), "wb") as file,
            pa.ipc.new_file(file, table.schema) as out,
        ):
            out.write_table(table)
    named = None if ids is None else f"lavant-{key}.ids"
    _indexes[key] = TableIndex(matchers[0].scheme, tuple(groups), named, lists, dimensions_of(matchers))
    _forget_others(key)
    return _indexes[key]


def keep_registered(spark: SparkSession, indexes: Iterable[TableIndex]) -> None:
    """Keep these for as long as the session can name them: until it registers others."""
    _registered[spark] = {name for index in indexes for name in _files(index)}


def _forget_others(newest: str) -> None:
    needed = {name for names in _registered.values() for name in names}
    for key, index in list(_indexes.items()):
        if len(_indexes) > INDEXES_MAX and key != newest and needed.isdisjoint(_files(index)):
            del _indexes[key]
            for name in _files(index):
                (_directory() / name).unlink(missing_ok=True)


def dimensions_of(matchers: Sequence[Any]) -> frozenset[Dimension] | None:
    """What the filters of all these matchers compare; None if they are encrypted."""
    if not all(isinstance(matcher, PlainMatcher) for matcher in matchers):
        return None
    return frozenset(dimension for matcher in matchers for dimension in matcher.dimensions)


def shipped(index: TableIndex, spark: SparkSession) -> TableIndex:
    """The index as the executors of this session find it."""
    if executors_share_disk(spark):
        return index._replace(directory=str(_directory()))
    done = _shipped.setdefault(spark, set())
    for name in _files(index):
        if name not in done:
            spark.addArtifacts(str(_directory() / name), file=True)
            done.add(name)
    return index


def executors_share_disk(spark: SparkSession) -> bool:
    """Whether the executors run on this machine; with Spark Connect nobody here knows."""
    return not is_connect(spark) and str(spark.sparkContext.master).startswith("local")


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _files(index: TableIndex) -> tuple[str, ...]:
    return index.groups if index.ids is None else (*index.groups, index.ids)


@cache
def _directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="lavant-indexes-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


# ---- in Python workers ----------------------------------------------------------------------------------------------

_open: OrderedDict[str, Any] = OrderedDict()


def open_group(index: TableIndex, group: int) -> Any:
    """The matcher of a group."""
    return _opened(index.groups[group], index, lambda path: MATCHERS[index.scheme].from_bytes(_mapped(path)))


def open_ids(index: TableIndex) -> pa.Array | None:
    """The ids of the subscriptions, by number."""
    if index.ids is None:
        return None
    return _opened(index.ids, index, _ids)


def _opened(name: str, index: TableIndex, read: Any) -> Any:
    path = SparkFiles.get(name) if index.directory is None else f"{index.directory}/{name}"
    if path in _open:
        _open.move_to_end(path)
        return _open[path]
    try:
        _open[path] = read(path)
    except FileNotFoundError:
        raise MissingComponent(
            f"the index {name} is gone: the driver has ended or made more than {INDEXES_MAX} others since; "
            "call match() again"
        ) from None
    while len(_open) > OPEN_MAX:
        _open.popitem(last=False)
    # Spark collects garbage after every task, which takes 80 ms with all that is imported now, unless it is frozen.
    gc.collect()
    gc.freeze()
    return _open[path]


def _ids(path: str) -> pa.Array:
    chunks = pa.ipc.open_file(pa.memory_map(path)).read_all().column("id")
    return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()


def _mapped(path: str) -> memoryview:
    with Path(path).open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
