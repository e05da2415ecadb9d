"""Where in a TOML file a value stands, so that an error can say it: the parser of the standard library does not."""

from __future__ import annotations

import re
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""Keys and numbers of tables: ("topic", 0, "service_rate")."""

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"\s*([\w\"'.*-]+)\s*=")


def line_of(text: str, path: Path) -> int:
    """The line of the innermost table or key on the way to a value, from 1.

    >>> line_of('[[topic]]\\nname = "A"\\n[[topic]]\\nname = "B"\\nrate = 3', ("topic", 1, "rate"))
    5
    """
    best_depth, best_line = 0, 1
    table: Path = ()
    counts: dict[Path, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            names = _names(header[2])
            if header[1] == "[[":
                counts[names] = counts.get(names, -1) + 1
            here = table = _numbered(names, counts)
        elif key := _KEY.match(line):
            here = (*table, *_names(key[1]))
        else:
            continue
        depth = min(len(here), len(path))  # a key with dots may begin further inside than the value that is asked for
        if depth > best_depth and path[:depth] == here[:depth]:
            best_depth, best_line = depth, number
    return best_line


def _names(dotted: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _numbered(names: Path, counts: dict[Path, int]) -> Path:
    """With the number of the table behind each name that stands for several."""
    found: Path = ()
    for length in range(1, len(names) + 1):
        found = (*found, names[length - 1])
        if names[:length] in counts:
            found = (*found, counts[names[:length]])
    return found
