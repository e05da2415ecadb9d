"""Options of the data sources: where they read and write, as the driver and the executors see it, and numbers."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql.types import StructType

from lavant.broker.storage.objects import open_storage
from lavant.core.errors import InvalidValue, MissingComponent
from lavant.core.files import is_uri


def place_of(options: Mapping[str, str], source: str) -> str:
    """What was given to `load` or `save`, so that any process can open it: a local path is absolute."""
    given = options.get("path")
    if not given:
        raise InvalidValue(f"{source} needs a path or URI: load(PATH) or save(PATH)")
    return open_storage(given).address


def check_visible(place: str) -> None:
    """For a task: raise in one line if its machine does not see a local path that the driver sees."""
    if not is_uri(place) and not Path(place).exists():
        raise MissingComponent(
            f"the executor on {socket.gethostname()} does not see {place}, a path of the driver's machine; "
            "give a URI that all machines reach, or mount the directory there under the same path"
        )


def count_option(options: Mapping[str, str], name: str, least: int = 0) -> int | None:
    """The number that an option gives; None without it."""
    given = options.get(name)
    if given is None:
        return None
    if not given.isdecimal() or int(given) < least:
        raise InvalidValue(f"option {name} is {given!r}; give a number, {least} or more")
    return int(given)


def check_schema(given: StructType, own: str, source: str) -> None:
    """Raise if somebody gave a schema to a source whose columns are always the same."""
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in given.fields)
    if columns != own:
        raise InvalidValue(f"{source} has the columns {own}, got a schema with {columns}; leave it out, and select")
