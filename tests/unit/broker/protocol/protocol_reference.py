"""The tables of docs/reference/protocol.md, made from the registry. `python -m` this module to write them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT
from msgspec.structs import FieldInfo, fields

from lavant.broker.protocol.registry import ANSWERS, DECLARATIONS, SERVER

PAGE = Path(__file__).resolve().parents[4] / "docs/reference/protocol.md"
_TABLE = "<!-- {name} -->\n{table}<!-- end -->"


def tables() -> dict[str, str]:
    """By name."""
    of_clients = [each for each in DECLARATIONS if each.scope != SERVER]
    return {
        "commands": _requests([each for each in of_clients if not each.is_query]),
        "queries": _requests([each for each in of_clients if each.is_query]),
        "answers": _rows(
            ("answer", "array", "to"),
            [
                (
                    f"`{answer.__name__}`",
                    _array(answer),
                    ", ".join(f"`{each.name}`" for each in of_clients if each.answer is answer) or "every request",
                )
                for answer in ANSWERS
            ],
        ),
        "own": _rows(
            ("command", "tag", "description"),
            [(f"`{each.name}`", f"`{each.tag}`", each.description) for each in DECLARATIONS if each.scope == SERVER],
        ),
    }


def page_with(text: str, made: dict[str, str]) -> str:
    """The page with these tables."""
    for name, table in made.items():
        pattern = re.compile(re.escape(f"<!-- {name} -->\n") + ".*?" + re.escape("<!-- end -->"), re.S)
        text, count = pattern.subn(lambda match, name=name, table=table: _TABLE.format(name=name, table=table), text)  # type: ignore[misc]
        assert count == 1, f"{PAGE} has {count} places for the table {name}"
    return text


def _requests(declarations: list[Any]) -> str:
    return _rows(
        ("request", "array", "scope", "answer", "description"),
        [
            (f"`{each.name}`", _array(each.request), each.scope or "any", f"`{each.answer.__name__}`", each.description)
            for each in declarations
        ],
    )


def _array(kind: Any) -> str:
    """The tag and the fields, those that may be left out with their defaults."""
    parts = [f'"{kind.__struct_config__.tag}"', *map(_field, fields(kind))]
    return f"`[{', '.join(parts)}]`"


def _field(field: FieldInfo) -> str:
    if field.default is NODEFAULT and field.default_factory is NODEFAULT:
        return field.name
    return f"{field.name}?"


def _rows(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = (head, ("---",) * len(head), *rows)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
