"""Reads publications from arguments, JSON lines, CSV and Parquet."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NamedTuple, TypeVar

import msgspec

from lavant.core.errors import UNDECODABLE, InvalidValue
from lavant.core.publications.attributes import AttributeValue
from lavant.core.publications.publication import ID, PAYLOAD, TIME, Publication, check_envelope
from lavant.core.seconds import SECOND_MS

T = TypeVar("T")

WAITING_MAX = 10_000
"""Publications that may be read ahead of publishing."""


class Read(NamedTuple):
    """One publication of the input, or the error in it."""

    number: int
    """Line or row number, from 1."""
    content: Publication | InvalidValue


def attributes_of(arguments: Iterable[str]) -> dict[str, AttributeValue]:
    """Parse NAME=VALUE arguments. A number, true or false is read as JSON; quoted or other text is text.

    >>> attributes_of(["symbol=IBM", "price=121.5", "is_late=true", 'code="007"', "formula=a=b"])
    {'symbol': 'IBM', 'price': 121.5, 'is_late': True, 'code': '007', 'formula': 'a=b'}
    """
    attributes: dict[str, AttributeValue] = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals:
            raise InvalidValue(f"{argument!r} is not NAME=VALUE, such as symbol=IBM or price=121.5")
        attributes[name] = _value(text)
    return attributes


def from_lines(lines: Iterable[bytes]) -> Iterator[Read]:
    """Parse JSON lines; blank lines are skipped."""
    from lavant.core.publications.json_lines import publication_of  # noqa: PLC0415

    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield Read(number, publication_of(line))
            except InvalidValue as error:
                yield Read(number, error)


def from_file(path: Path) -> Iterator[Read]:
    """Read a CSV or Parquet file, by its suffix, otherwise JSON lines."""
    try:
        if path.suffix.lower() in {".csv", ".parquet"}:
            for number, row in enumerate(_rows(path), start=1):
                try:
                    yield Read(number, _publication(row))
                except InvalidValue as error:
                    yield Read(number, error)
        else:
            with path.open("rb") as lines:
                yield from from_lines(lines)
    except OSError as error:
        raise InvalidValue(f"cannot read {path}: {error.strerror or error}") from None


def gathered(values: Iterable[T], at_most: int) -> Iterator[list[T]]:
    """Group values into lists of those available now: a single line does not wait for the next.

    >>> [sum(some) for some in gathered(iter([1, 2, 3]), 100)][-1] <= 6
    True
    """
    waiting: Queue[T | BaseException | None] = Queue(WAITING_MAX)

    def read() -> None:
        try:
            for value in values:
                waiting.put(value)
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    threading.Thread(target=read, name="lavant-input", daemon=True).start()
    end: BaseException | None = None
    is_over = False
    while not is_over:
        some: list[T] = []
        try:
            while len(some) < at_most and not is_over:
                value = waiting.get(block=not some)
                if value is None or isinstance(value, BaseException):
                    end, is_over = value, True
                else:
                    some.append(value)
        except Empty:
            pass
        if some:
            yield some
    if end is not None:
        raise end


def _value(text: str) -> AttributeValue:
    try:
        value = msgspec.json.decode(text)
    except (*UNDECODABLE, UnicodeEncodeError):
        return text
    return value if isinstance(value, str | int | float | bool) else text


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv, parquet  # noqa: PLC0415

    try:
        is_csv = path.suffix.lower() == ".csv"
        absent = csv.ConvertOptions(strings_can_be_null=True)
        batches = csv.open_csv(path, convert_options=absent) if is_csv else parquet.ParquetFile(path).iter_batches()
        for batch in batches:
            yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        raise InvalidValue(f"{path} cannot be read: {error}") from None


def _publication(row: dict[str, Any]) -> Publication:
    present = {name: value for name, value in row.items() if value is not None}
    id, time_ms, payload = str(present.pop(ID, "")), present.pop(TIME, 0), present.pop(PAYLOAD, None)
    check_envelope(id=id, time_ms=time_ms, payload=payload)
    attributes = {name: _plain(value) for name, value in present.items()}
    return Publication(attributes=attributes, id=id, time_s=time_ms / SECOND_MS, payload=payload)


def _plain(value: Any) -> Any:
    """Times as ISO 8601 text, decimals as numbers."""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value
