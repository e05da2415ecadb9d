"""What the documentation shows is what happens."""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest
from tests.unit.broker.filters.oracle import truth

from lavant.broker.filters import FILTER_LIMITS, parse
from lavant.broker.filters.model import parse_syntax
from lavant.core.publications.attributes import NAME_LENGTH_MAX, AttributeValue

PAGE = Path(__file__).resolve().parents[4] / "docs" / "filters.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_examples_of_the_page_run() -> None:
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted > 20
    assert results.failed == 0


@pytest.mark.parametrize("name", ["model", "covering.relation", "covering.covering_set", "explanation"])
def test_the_examples_of_the_modules_run(name: str) -> None:
    results = doctest.testmod(import_module(f"lavant.broker.filters.{name}"))
    assert results.attempted > 0
    assert results.failed == 0


def rows(heading: str) -> list[list[str]]:
    """The cells of the rows of the table after a heading of the page."""
    section = TEXT.split(heading)[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_three_valued_logic_is_right() -> None:
    values: list[AttributeValue | None] = [7, 3, "abc", True, None]
    names = {True: "**true**", False: "false", None: "unknown"}
    table = rows("## Absent attributes, other types, and `not`")
    assert len(table) == 9
    for filter, *shown in table:
        node = parse_syntax(filter.strip("`"), FILTER_LIMITS)
        assert shown == [names[truth(node, {} if value is None else {"x": value})] for value in values], filter


def test_both_columns_of_the_table_of_syntaxes_mean_the_same() -> None:
    compared = 0
    for expression, triple, _ in rows("## Two syntaxes, one meaning"):
        for left, right in zip(re.findall("`(.*?)`", expression), re.findall("`(.*?)`", triple), strict=False):
            if "p" not in left.split():
                assert parse(left) == parse(right), (left, right)
                compared += 1
    assert compared >= 15


def test_the_table_of_limits_is_right() -> None:
    for limit, default, field in rows("## Limits"):
        expected = getattr(FILTER_LIMITS, field.strip("`"), NAME_LENGTH_MAX)
        assert int(default) == expected, limit
