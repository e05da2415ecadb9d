"""Telemetry: one row for each observation of the service, by column.

The service writes these rows as Parquet files; the embedded estimator (`lavant.core.estimation`) and the Spark job
(`lavant.pipeline.jobs.telemetry`) read them. There are four kinds of row:

| kind     | `time_us` is when …                       | carries                                             |
| -------- | ----------------------------------------- | --------------------------------------------------- |
| arrival  | publications arrived, all at that instant | publications ≥ 1                                    |
| service  | a server was done with one task           | duration (of the service), outcome                  |
| response | a task, or with topic "" a job, was done  | duration (since its arrival), outcome               |
| match    | a batch was matched against a slice       | publications ≥ 1, subscriptions, matches            |

A topic of "" stands for a job as a whole: its arrival at the system, its response from end to end. A job type of ""
stands for publications that belong to no job. A topic that begins with @ is a stage of the server itself (@access,
@match), before messages are in queues.

Times and durations are integer microseconds. Milliseconds would not do: at 10,000 arrivals a second nine gaps in ten
would be 0, and the variability of arrivals would be estimated ten times too large. Sums of integers do not depend on
the order of the rows, so every implementation gives the same figures.

Each row carries the version of this schema, so that files of two versions in one directory can be told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lavant.core.errors import InvalidValue, LimitExceeded

TELEMETRY_VERSION = 1
ROWS_OF_A_BATCH_MAX = 1_000_000
TIME_US_MAX = 2**53
"""The year 2255; beyond it doubles, which Spark uses for percentiles, skip microseconds."""
DURATION_US_MAX = 7 * 24 * 3600 * 1_000_000
"""A week: ten million squares of it, times ten million, still fit the 38 digits of Spark's decimals."""
PUBLICATIONS_MAX = 2**20
SUBSCRIPTIONS_MAX = 2**32
"""As many as there are ids; times the publications, still fewer than the integers of a double."""
NAME_LENGTH_MAX = 128
ANY_JOB_TYPE = "*"
"""In estimates: all job types of a topic together. No job type has this name."""


STAGE_PREFIX = "@"
"""No queue has a name that begins with it."""


def is_stage(topic: str) -> bool:
    """Whether a topic is a stage of the server, not a topic of consumers."""
    return topic.startswith(STAGE_PREFIX)


class ObservationKind(StrEnum):
    """The kind of an observation."""

    ARRIVAL = "arrival"
    SERVICE = "service"
    RESPONSE = "response"
    MATCH = "match"


class Outcome(StrEnum):
    """How a service or a response ended."""

    OK = "ok"
    FAILED = "failed"


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One row. Only services and responses have `duration_us`; the table above says which kinds have counts."""

    time_us: int
    kind: ObservationKind
    job_type: str = ""
    topic: str = ""
    duration_us: int | None = None
    outcome: Outcome = Outcome.OK
    publications: int = 0
    subscriptions: int = 0
    matches: int = 0
    host: str = ""
    slice: int | None = None


TELEMETRY_SCHEMA = pa.schema(
    [
        pa.field("version", pa.int16(), nullable=False),
        pa.field("time_us", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("job_type", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("duration_us", pa.int64()),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("publications", pa.int64(), nullable=False),
        pa.field("subscriptions", pa.int64(), nullable=False),
        pa.field("matches", pa.int64(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        pa.field("slice", pa.int32()),
    ]
)

TIMED = (ObservationKind.SERVICE, ObservationKind.RESPONSE)
COUNTED = (ObservationKind.ARRIVAL, ObservationKind.MATCH)


def telemetry_batch(observations: Sequence[Observation]) -> pa.RecordBatch:
    """Returns observations as a checked record batch, ready for a Parquet file.

    >>> batch = telemetry_batch([Observation(time_us=5, kind=ObservationKind.ARRIVAL, topic="A", publications=1)])
    >>> batch.num_rows, batch.column("kind").to_pylist()
    (1, ['arrival'])
    """
    columns: list[pa.Array] = []
    for field in TELEMETRY_SCHEMA:
        if field.name == "version":
            columns.append(pa.repeat(pa.scalar(TELEMETRY_VERSION, field.type), len(observations)))
        else:
            columns.append(_column(field, [getattr(observation, field.name) for observation in observations]))
    return checked_telemetry(pa.RecordBatch.from_arrays(columns, schema=TELEMETRY_SCHEMA))


def checked_telemetry(records: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows with exactly the columns of the schema, or raises with the column, the row and the value.

    Columns may be in another order, with others among them, as in a file of another program.
    """
    if records.num_rows > ROWS_OF_A_BATCH_MAX:
        raise LimitExceeded(
            f"a telemetry batch has {records.num_rows} rows, at most {ROWS_OF_A_BATCH_MAX} are allowed; split it"
        )
    names = records.schema.names
    if "version" in names:  # checked first: another version may have other columns
        _check_version(records.column("version"))
    if missing := [name for name in TELEMETRY_SCHEMA.names if name not in names]:
        raise InvalidValue(f"telemetry lacks the columns {', '.join(missing)}; it has {', '.join(names)}")
    columns = [_typed(field, records.column(field.name)) for field in TELEMETRY_SCHEMA]
    checked = pa.RecordBatch.from_arrays(columns, schema=TELEMETRY_SCHEMA)
    _check_rows(checked)
    return checked


def _check_version(versions: pa.Array) -> None:
    for version in pc.unique(versions).to_pylist():
        if version != TELEMETRY_VERSION:
            raise InvalidValue(
                f"telemetry is of version {version}, this Lavant reads version {TELEMETRY_VERSION}; "
                "read it with the Lavant that wrote it"
            )


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        raise InvalidValue(f"telemetry column {field.name!r} takes {field.type}: {error}") from None


def _typed(field: pa.Field, column: pa.Array) -> pa.Array:
    if column.type != field.type:
        try:
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidValue(
                f"telemetry column {field.name!r} is of type {column.type}, expected {field.type}: {error}"
            ) from None
    if not field.nullable and column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise InvalidValue(f"telemetry column {field.name!r} is null in row {row}; only duration_us and slice may be")
    return column


def _check_rows(rows: pa.RecordBatch) -> None:
    for problem, wrong in _problems(rows):
        if pc.any(wrong).as_py():
            row = pc.index(wrong, True).as_py()
            values = {name: value for name, value in rows.slice(row, 1).to_pylist()[0].items() if name != "version"}
            raise InvalidValue(f"telemetry row {row}: {problem}; the row is {values}")


def _problems(rows: pa.RecordBatch) -> list[tuple[str, pa.Array]]:
    """Each rule as text, with a mask of the rows that break it. `pipeline.jobs.telemetry` has the same rules in SQL."""
    kind, duration_us = rows.column("kind"), rows.column("duration_us")
    publications, subscriptions, matches = (rows.column(name) for name in ("publications", "subscriptions", "matches"))
    timed, counted = _is_in(kind, TIMED), _is_in(kind, COUNTED)
    return [
        (f"kind must be one of {', '.join(ObservationKind)}", pc.invert(_is_in(kind, tuple(ObservationKind)))),
        (f"outcome must be one of {', '.join(Outcome)}", pc.invert(_is_in(rows.column("outcome"), tuple(Outcome)))),
        (f"time_us must lie between 0 and {TIME_US_MAX}", _outside(rows.column("time_us"), 0, TIME_US_MAX)),
        ("services and responses have a duration_us, other rows none", pc.equal(timed, duration_us.is_null())),
        (
            f"duration_us must lie between 0 and {DURATION_US_MAX}",
            _outside(duration_us, 0, DURATION_US_MAX).fill_null(False),
        ),
        ("only services and responses fail", pc.and_not(pc.equal(rows.column("outcome"), Outcome.FAILED), timed)),
        (f"publications must lie between 0 and {PUBLICATIONS_MAX}", _outside(publications, 0, PUBLICATIONS_MAX)),
        (f"subscriptions must lie between 0 and {SUBSCRIPTIONS_MAX}", _outside(subscriptions, 0, SUBSCRIPTIONS_MAX)),
        ("arrivals and matches have publications, other rows none", pc.equal(counted, pc.equal(publications, 0))),
        (
            "only matches have subscriptions",
            pc.and_not(pc.greater(subscriptions, 0), pc.equal(kind, ObservationKind.MATCH)),
        ),
        (
            "matches must lie between 0 and publications × subscriptions",
            pc.or_(pc.less(matches, 0), pc.greater(matches, pc.multiply(publications, subscriptions))),
        ),
        (f"job_type {ANY_JOB_TYPE!r} stands for all of them", pc.equal(rows.column("job_type"), ANY_JOB_TYPE)),
        *(
            (
                f"{name} has more than {NAME_LENGTH_MAX} characters",
                pc.greater(pc.utf8_length(rows.column(name)), NAME_LENGTH_MAX),
            )
            for name in ("job_type", "topic", "host")
        ),
    ]


def _is_in(column: pa.Array, values: tuple[str, ...]) -> pa.Array:
    return pc.is_in(column, value_set=pa.array([str(value) for value in values], pa.string()))


def _outside(column: pa.Array, low: int, high: int) -> pa.Array:
    return pc.or_(pc.less(column, low), pc.greater(column, high))
