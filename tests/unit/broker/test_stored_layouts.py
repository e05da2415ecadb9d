"""Whoever changes the fields of stored records must raise a version, or say that older ones may ignore them."""

from __future__ import annotations

import re

import pytest
from tests.unit.broker.stored_layouts import DIRECTORY, SECTIONS, Section, layouts_of, misread, read, written

from lavant.broker.protocol.queues import CreateQueue, Send

OLD = {"Send": ["queue: str", "entries: list[SendEntry]"], "SendEntry": ["body: bytes"]}


@pytest.mark.parametrize("section", SECTIONS, ids=lambda each: each.name)
def test_a_version_stands_for_one_layout(section: Section) -> None:
    """See `stored_layouts` for what to do if it fails."""
    assert layouts_of(section.kinds) == read(section.path.read_text())


@pytest.mark.parametrize("section", SECTIONS, ids=lambda each: each.name)
def test_everything_of_earlier_versions_can_be_read(section: Section) -> None:
    for path in DIRECTORY.glob(f"{section.name}-*.txt"):
        assert misread(read(path.read_text()), layouts_of(section.kinds)) == []


def test_each_text_belongs_to_a_section_and_to_no_later_version() -> None:
    versions = {section.name: section.version for section in SECTIONS}
    for path in DIRECTORY.iterdir():
        found = re.fullmatch(r"(\w+)-(\d+)\.txt", path.name)
        assert found is not None
        assert int(found[2]) <= versions[found[1]]


def test_layouts_show_order_types_and_defaults_of_all_that_a_record_holds() -> None:
    layouts = layouts_of(Send | CreateQueue)
    assert layouts["Send [send]"] == ["queue: str", "entries: list[SendEntry]"]
    assert layouts["SendEntry"][0].startswith("body: bytes")
    assert "order: 'in-order' | 'out-of-order' = 'out-of-order'" in layouts["QueueConfig"]
    assert read(written(layouts)) == layouts


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"Send": ["queue: str"]}, "Send had queue: str, entries: list[SendEntry]"),
        ({"Send": ["entries: list[SendEntry]", "queue: str"]}, "Send had queue: str, entries: list[SendEntry]"),
        ({"SendEntry": ["body: str"]}, "SendEntry had body: bytes"),
        ({"SendEntry": ["body: bytes", "delay_ms: int"]}, "SendEntry has no default for delay_ms: int"),
    ],
)
def test_a_change_that_another_version_would_misread_is_found(changed: dict[str, list[str]], problem: str) -> None:
    assert misread(OLD, {**OLD, **changed}) == [problem]


def test_a_struct_that_is_gone_is_found_and_a_new_field_with_a_default_is_none() -> None:
    assert misread(OLD, {"Send": OLD["Send"]}) == ["SendEntry is gone"]
    assert misread(OLD, {**OLD, "SendEntry": ["body: bytes", "delay_ms: int = 0"], "New": ["a: int"]}) == []
