"""Records of Kafka: their publications, matched in a task, and the notifications as records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from lavant.broker.matching import Matches
from lavant.broker.matching.encrypted.values import EncryptedBatch
from lavant.broker.matching.merge import merge
from lavant.broker.slices import SliceReader
from lavant.broker.slices.reader import StoreVersion
from lavant.core.errors import InvalidValue
from lavant.core.publications.batch import PublicationBatch
from lavant.core.publications.json_lines import json_object, publication_row
from lavant.core.publications.publication import ID, POINT, PUBLICATION_ID_LENGTH_MAX
from lavant.pipeline.internals.worker_errors import refusals_in_one_line
from lavant.pipeline.operators.open_slices import SlicePlace, open_slice
from lavant.pipeline.operators.travel import Luggage
from lavant.pipeline.sources.options import check_visible

RECORDS_AT_ONCE = 4096
IDS_OF_A_RECORD_MAX = 50_000
"""Subscriptions in one record: some 500 KB, half of what Kafka accepts. A longer list takes several records."""
SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("rejected", pa.bool_())],
)
COLUMNS = "key binary, value binary, topic string, rejected boolean"


class NotificationRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The value of a record, in JSON. The first three identify the publication, also if it is written twice."""

    topic: str
    partition: int
    offset: int
    id: str | None = None
    subscriptions: list[int] = []
    rejected: str | None = None
    part: int | None = None
    """Number of this record, from 0, if the subscriptions take several."""
    parts: int | None = None


class TopicMatch(NamedTuple):
    """What a task must know."""

    place: SlicePlace
    topic: str
    rejected_topic: str
    """Of refused publications; may be the same."""
    version: StoreVersion | None = None
    """The subscriptions that travel with the task; None if it reads the latest ones itself."""
    luggage: Luggage | None = None


class Parsed(NamedTuple):
    """Publications of some records; row i is that of record `places[i]`."""

    rows: list[dict[str, Any]]
    places: list[int]
    rejected: dict[int, str]


def match_function(settings: TopicMatch) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task on its records: columns key, value, topic, partition, offset."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with refusals_in_one_line():
            version = _version(settings)
            for batch in batches:
                for start in range(0, batch.num_rows, RECORDS_AT_ONCE):
                    records = batch.slice(start, RECORDS_AT_ONCE)
                    parsed = parse_records(records, settings.place.scheme)
                    matches, refused = match_rows(settings.place, version, parsed.rows)
                    yield _notifications(records, parsed, matches, refused, settings)

    return run


def _version(settings: TopicMatch) -> StoreVersion:
    if settings.version is not None and settings.luggage is not None:
        settings.luggage()
        return settings.version
    check_visible(settings.place.storage)
    return SliceReader(settings.place.storage, settings.place.identity).version()


def parse_records(records: pa.RecordBatch, scheme: str) -> Parsed:
    """The publications of the records' values, and why others are none."""
    parsed = Parsed([], [], {})
    read = _encrypted_row if scheme == "encrypted" else publication_row
    keys, values = records.column("key").to_pylist(), records.column("value").to_pylist()
    for place, (key, value) in enumerate(zip(keys, values, strict=True)):
        try:
            if value is None:
                raise InvalidValue("the record has no value")
            row = read(value)
        except InvalidValue as error:
            parsed.rejected[place] = str(error)
            continue
        if row.get(ID) is None:
            row[ID] = _id_of(key)
        parsed.rows.append(row)
        parsed.places.append(place)
    return parsed


def _encrypted_row(value: bytes) -> dict[str, Any]:
    row = json_object(value)
    point = row.get(POINT)
    if not isinstance(point, list) or not all(type(number) in (int, float) for number in point):
        raise InvalidValue(f"an encrypted publication needs {POINT!r}, a list of numbers")
    id = row.get(ID)
    return {ID: id if isinstance(id, str) else None, POINT: [float(number) for number in point]}


def _id_of(key: bytes | None) -> str | None:
    """A key that can be an id."""
    try:
        text = "" if key is None else key.decode()
    except UnicodeDecodeError:
        return None
    return text if text and text.isprintable() and len(text) <= PUBLICATION_ID_LENGTH_MAX else None


def match_rows(place: SlicePlace, version: StoreVersion, rows: list[dict[str, Any]]) -> tuple[Matches, dict[int, str]]:
    """The matches of each row, and why well-formed rows are refused: encrypted under another schema, say.

    Rows that cannot be matched together are matched in halves, so that a refused one is alone in the end.
    """
    if not rows:
        return _nothing(0), {}
    try:
        batch = _encrypted_batch(rows) if place.scheme == "encrypted" else PublicationBatch.from_dicts(rows)
        slices = (open_slice(place, number, version).matcher for number in range(len(version.slices)))
        return merge([each.match(batch) for each in slices]), {}
    except InvalidValue as error:
        if len(rows) == 1:
            return _nothing(1), {0: str(error)}
    middle = len(rows) // 2
    (left, refused), (right, also) = (match_rows(place, version, half) for half in (rows[:middle], rows[middle:]))
    offsets = np.concatenate([left.offsets, left.offsets[-1] + right.offsets[1:]])
    matches = Matches(offsets, np.concatenate([left.ids, right.ids]))
    return matches, refused | {middle + row: reason for row, reason in also.items()}


def _encrypted_batch(rows: list[dict[str, Any]]) -> EncryptedBatch:
    if len({len(row[POINT]) for row in rows}) > 1:
        raise InvalidValue("encrypted publications have vectors of different lengths")
    return EncryptedBatch(np.array([row[POINT] for row in rows], np.float64))


def _nothing(publications: int) -> Matches:
    return Matches(np.zeros(publications + 1, np.int64), np.empty(0, np.uint32))


def _notifications(
    records: pa.RecordBatch, parsed: Parsed, matches: Matches, refused: dict[int, str], settings: TopicMatch
) -> pa.RecordBatch:
    """In the order of the records; records that match nothing have none."""
    reasons = parsed.rejected | {parsed.places[row]: reason for row, reason in refused.items()}
    row_of = {place: row for row, place in enumerate(parsed.places)}
    keys, ends = records.column("key").to_pylist(), matches.offsets.tolist()
    found: list[tuple[int, NotificationRecord]] = []
    for place, (topic, partition, offset) in enumerate(
        zip(*(records.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    ):
        origin = {"topic": topic, "partition": partition, "offset": offset}
        row = row_of.get(place)
        id = _id_of(keys[place]) if row is None else parsed.rows[row].get(ID)
        if place in reasons:
            found.append((place, NotificationRecord(**origin, id=id, rejected=reasons[place])))
        elif row is not None and ends[row] < ends[row + 1]:
            ids = matches.ids[ends[row] : ends[row + 1]]
            found += [(place, each) for each in _parts(origin, id, ids)]
    encode = msgspec.json.Encoder().encode
    return pa.RecordBatch.from_arrays(
        [
            pa.array([_key(keys[place], each) for place, each in found], pa.binary()),
            pa.array([encode(each) for _, each in found], pa.binary()),
            pa.array([settings.rejected_topic if each.rejected else settings.topic for _, each in found], pa.string()),
            pa.array([each.rejected is not None for _, each in found], pa.bool_()),
        ],
        schema=SCHEMA,
    )


def _parts(origin: dict[str, Any], id: str | None, ids: Any) -> Iterator[NotificationRecord]:
    parts = -(-len(ids) // IDS_OF_A_RECORD_MAX)
    for part in range(parts):
        some = ids[part * IDS_OF_A_RECORD_MAX : (part + 1) * IDS_OF_A_RECORD_MAX].tolist()
        if parts == 1:
            yield NotificationRecord(**origin, id=id, subscriptions=some)
        else:
            yield NotificationRecord(**origin, id=id, subscriptions=some, part=part, parts=parts)


def _key(key: bytes | None, notification: NotificationRecord) -> bytes:
    """The publication's key; without one its partition, so that the notifications of a partition keep their order."""
    return key if key is not None else f"{notification.topic}-{notification.partition}".encode()
