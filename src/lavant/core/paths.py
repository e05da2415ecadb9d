"""Paths that users give: directories and files that this machine reaches under their names, and nothing else.

A `Path` takes `hdfs://host/x` for a directory named `hdfs:`, so whoever wrote that would find nothing where they look.
"""

from __future__ import annotations

import re
from pathlib import Path

from lavant.core.errors import InvalidValue

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_FILE_URI = re.compile(r"file:(?://(?:localhost)?)?(/[^/].*|/)", re.IGNORECASE | re.DOTALL)


def local_path(given: str | Path) -> Path:
    """The path that was given, also as `file:///…`; any other URI is an error.

    >>> local_path("file:///data/log"), local_path("data/log")
    (PosixPath('/data/log'), PosixPath('data/log'))
    """
    text = str(given)
    scheme = _URI.match(text)
    if scheme is None:
        return Path(given)
    found = _FILE_URI.fullmatch(text)
    if found is None or "%" in text:
        raise InvalidValue(
            f"{text!r} is a URI ({scheme[1]}), and only paths of this machine's file system are supported, such as "
            "/data/out or file:///data/out; mount the storage here, or copy what it holds (a directory of such a name "
            "is given by its absolute path)"
        )
    return Path(found[1])
