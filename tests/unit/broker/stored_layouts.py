"""The fields of all that a journal and its snapshots hold, as text: `tests/data/layouts` has those of each version.

A reader drops fields at the end that it does not know. So an older version would open a newer journal and lose what is
in a new field, unless the version in front tells it not to. After a change of fields:

* raise the version, `RULES` (`broker/queues/compatibility.py`) or the `FORMAT` of the snapshot's section, and run

      python -m tests.unit.broker.stored_layouts

* or, if an older version may ignore new fields at the end, write the text of the present version anew:

      python -m tests.unit.broker.stored_layouts --may-be-ignored
"""

from __future__ import annotations

import sys
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from lavant.broker.federation import snapshot as federation
from lavant.broker.federation.migration import snapshot as migrations
from lavant.broker.protocol.registry import COMMANDS
from lavant.broker.queues import snapshot as queues
from lavant.broker.queues.compatibility import RULES
from lavant.broker.subscriptions import snapshot as subscriptions
from lavant.broker.workflows import snapshot as jobs

DIRECTORY = Path(__file__).parents[2] / "data" / "layouts"
Layouts = dict[str, list[str]]
"""By struct, its fields in order."""


class Section(NamedTuple):
    """A part of what is stored, with a version of its own."""

    name: str
    version: int
    kinds: Any

    @property
    def path(self) -> Path:
        return DIRECTORY / f"{self.name}-{self.version}.txt"


SECTIONS = (
    Section("journal", RULES, reduce(or_, sorted(COMMANDS, key=lambda each: each.__name__))),
    Section("queues", queues.FORMAT, queues.Part),
    Section("jobs", jobs.FORMAT, jobs.Part),
    Section("subscriptions", subscriptions.FORMAT, subscriptions.Part),
    Section("federation", federation.FORMAT, federation.FederationPart),
    Section("migrations", migrations.FORMAT, migrations.MigrationPart),
)


def layouts_of(kinds: Any) -> Layouts:
    found: Layouts = {}
    _text(inspect.type_info(kinds), found)
    return dict(sorted(found.items()))


def written(layouts: Layouts) -> str:
    return "".join(f"{name}\n" + "".join(f"    {field}\n" for field in fields) for name, fields in layouts.items())


def read(text: str) -> Layouts:
    found: Layouts = {}
    for line in text.splitlines():
        if line.startswith(" "):
            found[list(found)[-1]].append(line.strip())
        else:
            found[line] = []
    return found


def misread(old: Layouts, new: Layouts) -> list[str]:
    """What a reader of one of two versions would not understand of the other: all but new structs, and new fields with
    a default at the end of a struct."""
    problems = [f"{name} is gone" for name in old if name not in new]
    for name, fields in old.items():
        added = new.get(name, fields)[len(fields) :]
        if new.get(name, fields)[: len(fields)] != fields:
            problems.append(f"{name} had {', '.join(fields)}")
        problems += [f"{name} has no default for {field}" for field in added if "=" not in field]
    return problems


def _text(kind: inspect.Type, found: Layouts) -> str:
    """A type as text; the structs that it names are added to the found ones."""
    if isinstance(kind, inspect.StructType):
        name = kind.cls.__name__ + ("" if kind.tag is None else f" [{kind.tag}]")
        if name not in found:
            found[name] = []  # first, since it may name itself
            found[name] += [_field(each, found) for each in kind.fields]
        return kind.cls.__name__
    if isinstance(kind, inspect.UnionType):
        return " | ".join(_text(each, found) for each in kind.types)
    if isinstance(kind, inspect.LiteralType):
        return " | ".join(map(repr, kind.values))
    if isinstance(kind, inspect.EnumType):
        return " | ".join(repr(each.value) for each in kind.cls)
    if isinstance(kind, inspect.DictType):
        return f"dict[{_text(kind.key_type, found)}, {_text(kind.value_type, found)}]"
    if isinstance(kind, inspect.TupleType):
        return f"tuple[{', '.join(_text(each, found) for each in kind.item_types)}]"
    if isinstance(kind, inspect.NamedTupleType):
        return f"tuple[{', '.join(_text(each.type, found) for each in kind.fields)}]"
    if isinstance(kind, inspect.CollectionType):
        return f"list[{_text(kind.item_type, found)}]"
    return type(kind).__name__.removesuffix("Type").lower()


def _field(field: inspect.Field, found: Layouts) -> str:
    default = "" if field.required else f" = {field.default!r}"
    if field.default_factory is not msgspec.NODEFAULT:
        default = f" = {field.default_factory()!r}"
    return f"{field.encode_name}: {_text(field.type, found)}{default}"


def main() -> None:
    for section in SECTIONS:
        layouts = layouts_of(section.kinds)
        if section.path.exists():
            before = read(section.path.read_text())
            if layouts == before:
                continue
            problems = misread(before, layouts)
            if problems or "--may-be-ignored" not in sys.argv[1:]:
                sys.exit(f"{section.path.name} exists, and fields changed; raise the version: {'; '.join(problems)}")
        section.path.write_text(written(layouts))
        print(f"wrote {section.path.name}")


if __name__ == "__main__":
    main()
