"""Where a data source reads: a path or URI, as the driver and the executors see it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from lavant.core.errors import InvalidValue, MissingComponent
from lavant.core.files import local_path


def place_of(options: Mapping[str, str], source: str) -> str:
    """The path that was given to `load` or `save`; a local one is absolute, because executors run elsewhere."""
    given = options.get("path")
    if not given:
        raise InvalidValue(f"{source} needs a path or URI: load(PATH) or save(PATH)")
    return str(local_path(given).absolute())


def check_visible(place: str) -> None:
    """For a task: raise in one line if its machine does not see a local path that the driver sees."""
    if not Path(place).exists():
        raise MissingComponent(
            f"the executor on {socket.gethostname()} does not see {place}, a path of the driver's machine; "
            "give a URI that all machines reach, or mount the directory there under the same path"
        )
