"""TOML files whose errors name the file, the line and the value."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias, TypeVar

import msgspec

from lavant.core.errors import InvalidValue

Path: TypeAlias = tuple[str | int, ...]
"""Keys and numbers of tables: ("topic", 0, "service_rate")."""

SIZE_BYTES_MAX = 4_000_000

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"\s*([\w\"'.*-]+)\s*=")


def line_of(text: str, path: Path) -> int:
    """The line of the innermost table or key on the path to a value, from 1.

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
        depth = min(len(here), len(path))  # a dotted key may begin further inside than the requested value
        if depth > best_depth and path[:depth] == here[:depth]:
            best_depth, best_line = depth, number
    return best_line


def _names(dotted: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _numbered(names: Path, counts: dict[Path, int]) -> Path:
    """With the table's number after each name of an array of tables."""
    found: Path = ()
    for length in range(1, len(names) + 1):
        found = (*found, names[length - 1])
        if names[:length] in counts:
            found = (*found, counts[names[:length]])
    return found


_T = TypeVar("_T")


def _fields(kind: type, path: Path) -> list[str]:
    """The fields of the table at a path; none if it has no fixed ones.

    >>> _fields(msgspec.defstruct("File", [("queue", msgspec.defstruct("Queue", ["loss"]))]), ("queue",))
    ['loss']
    """
    table: Any = msgspec.inspect.type_info(kind)
    for part in (*path, None):
        if isinstance(table, msgspec.inspect.UnionType):
            tables = (msgspec.inspect.StructType, msgspec.inspect.ListType, msgspec.inspect.VarTupleType)
            table = next((each for each in table.types if isinstance(each, tables)), None)
        if part is None:
            break
        if isinstance(table, msgspec.inspect.StructType):
            table = next((each.type for each in table.fields if each.encode_name == part), None)
        else:
            table = getattr(table, "item_type", None)
    return [each.encode_name for each in table.fields] if isinstance(table, msgspec.inspect.StructType) else []


class TomlFile:
    """The tables of a TOML file, and errors about them.

    `tables` are those to use instead of the text's own, after `remark`: changes that somebody asked for.

    >>> TomlFile("[queue]\\nloss = 2", name="q.toml").refuse("loss is 2, at most 1 is possible", "queue", "loss")
    Traceback (most recent call last):
        ...
    lavant.core.errors.InvalidValue: q.toml:2: loss is 2, at most 1 is possible
    """

    def __init__(self, text: str, *, name: str, tables: dict[str, Any] | None = None, remark: str = "") -> None:
        self.text, self.name, self._remark = text, name, remark
        if len(text) > SIZE_BYTES_MAX:
            raise InvalidValue(f"{name}: a file has at most {SIZE_BYTES_MAX} bytes, this has {len(text)}")
        try:
            self.tables = tomllib.loads(text) if tables is None else tables
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"line (\d+)", str(error))
            number = int(line[1]) if line else len(text.splitlines())
            raise InvalidValue(f"{name}:{number}: {error}") from None

    def converted(self, kind: type[_T], *, choices: Mapping[str, str]) -> _T:
        """The tables as a value; `choices` describes the values of fields that have a few."""
        try:
            return msgspec.convert(self.tables, kind)
        except msgspec.ValidationError as error:
            self._explain(str(error), kind, choices)

    def place(self, *path: str | int) -> str:
        """File and line of a value, for errors."""
        return f"{self.name}:{line_of(self.text, path)}{self._remark}"

    def located(self, *path: str | int) -> Located:
        """Adds the location to errors that are raised within the block."""
        return Located(self, path)

    def refuse(self, what: str, *path: str | int) -> NoReturn:
        raise InvalidValue(f"{self.place(*path)}: {what}")

    def _explain(self, message: str, kind: type, choices: Mapping[str, str]) -> NoReturn:
        """Raise msgspec's error with the value and the line."""
        said, _, where = message.partition(" - at ")
        path = tuple(
            int(part) if part.isdecimal() else part
            for part in re.findall(r"\w[\w-]*", where.strip("`").removeprefix("$"))
        )
        if field := re.search(r"unknown field `(.+)`", said):
            others = "".join(f"; it has {', '.join(names)}" for names in [_fields(kind, path)] if names)
            self.refuse(f"{self._spoken(path)} has no field {field[1]!r}{others}", *path, field[1])
        if field := re.search(r"missing required field `(.+)`", said):
            wanted = f"table [{field[1]}]" if _fields(kind, (*path, field[1])) else field[1]
            self.refuse(f"{self._spoken(path)} needs a {wanted}", *path)
        value = self._value(path)
        known = choices.get(str(path[-1]) if path else "")
        wanted = f"expected {known}" if known else _plain(said)
        if isinstance(value, dict | list):
            self.refuse(f"{self._spoken(path)}: {wanted}", *path)
        self.refuse(f"{self._spoken(path)} is {value!r}, {wanted}", *path)

    def _spoken(self, path: Path) -> str:
        """A path as text: "service_rate of topic 'A'"."""
        if len(path) < 2 or not isinstance(path[1], int):
            return ".".join(map(str, path)) if path else "the file"
        name = self._value((*path[:2], "name"))
        owner = f"{path[0]} {path[1] + 1 if name is None else repr(name)}"
        return f"{'.'.join(map(str, path[2:]))} of {owner}" if len(path) > 2 else owner

    def _value(self, path: Path) -> Any:
        value: Any = self.tables
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value


class Located:
    """Adds the location in the file to errors about its values."""

    def __init__(self, file: TomlFile, path: Path) -> None:
        self._file, self._path = file, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidValue):
            self._file.refuse(str(error), *self._path)


_WORDS = {
    "`float`": "a number",
    "`int`": "a whole number",
    "`str`": "a text",
    "`array`": "a list",
    "`object`": "a table",
}


def _plain(said: str) -> str:
    """
    >>> _plain("Expected `float | null`, got `str`"), _plain("Expected `float` >= 0.05, or 1.0")
    ('expected a number, got a text', 'expected a number >= 0.05, or 1')
    """
    said = said.replace(" | null`", "`")  # a TOML file has no null: who wants none leaves the key out
    for word, plain in _WORDS.items():
        said = said.replace(word, plain)
    return re.sub(r"\.0\b", "", said[0].lower() + said[1:]).replace("`", "")
