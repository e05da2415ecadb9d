"""The automata of patterns: what they find is what Python's `in` and `endswith` find, at a cost that stays linear."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.matching.plain.brute_force import Row, assert_index_agrees, expected, matched, matcher_of

from lavant.broker.filters.algebra.constraints import Pattern, PatternKind
from lavant.broker.matching.plain import index
from lavant.broker.matching.plain.extras import ExtraConstraints
from lavant.broker.matching.plain.groups import LITERAL, LiteralKeys
from lavant.broker.matching.plain.literals import NONE, Literals, TextBatch, build_literals, find_literals
from lavant.broker.matching.plain.matcher import PlainSegment
from lavant.broker.matching.plain.strings import StringTable
from lavant.broker.matching.plain.table import ConstraintKind, FilterTable

LETTERS = st.sampled_from("ab\0é漢🦊%_")
TEXTS = st.text(LETTERS, max_size=12)
PATTERNS = st.builds(Pattern, st.sampled_from(PatternKind), st.text(LETTERS, max_size=5))


def table_of(patterns: Sequence[Sequence[Pattern]]) -> FilterTable:
    """A filter for each sequence, on attribute number i modulo 2."""
    count = len(patterns)
    ends = np.full(count, np.inf)
    return FilterTable(
        count,
        (("x", ConstraintKind.STRING), ("y", ConstraintKind.STRING)),
        StringTable.of([]),
        np.arange(count, dtype=np.uint32),
        np.arange(count + 1, dtype=np.uint32),
        (np.arange(count) % 2).astype(np.uint16),
        -ends,
        ends,
        ExtraConstraints.of(range(count), [()] * count, patterns),
    )


def texts_of(literals: Literals, texts: Sequence[str]) -> TextBatch:
    """The same texts for each automaton."""
    encoded = [text.encode() for text in texts] * len(literals.root_child)
    ends = np.cumsum([len(each) for each in encoded], dtype=np.int64)
    numbers = np.arange(len(encoded), dtype=np.int32).reshape(len(literals.root_child), -1)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    return TextBatch(numbers, starts, ends, np.frombuffer(b"".join(encoded), np.uint8))


def found_in(patterns: Sequence[Pattern], texts: Sequence[str]) -> list[list[bool]]:
    """For each pattern, in which texts its literal was found."""
    literals = build_literals(table_of([[pattern] for pattern in patterns]))
    batch = texts_of(literals, texts)
    found = find_literals(literals, batch)
    parts = np.split(found.literals, found.start[1:-1])
    assert all((np.diff(part) > 0).all() for part in parts)
    return [
        [literal in parts[text] for text in batch.text[literals.root[number % 2]]]
        for number, literal in enumerate(literals.of_pattern.tolist())
    ]


@given(st.lists(PATTERNS, min_size=1, max_size=30), st.lists(TEXTS, min_size=1, max_size=6))
def test_it_finds_what_python_finds(patterns: list[Pattern], texts: list[str]) -> None:
    assert found_in(patterns, texts) == [[pattern.holds(text) for text in texts] for pattern in patterns]


def test_texts_without_a_publication_are_not_searched() -> None:
    literals = build_literals(table_of([[Pattern(PatternKind.CONTAINS, "a")]]))
    texts = texts_of(literals, ["a", "a", "a"])
    found = find_literals(literals, texts._replace(text=np.array([[-1, 2]], np.int32)))
    assert found.start.tolist() == [0, 0, 0, 1]


def test_an_automaton_is_no_larger_than_its_literals() -> None:
    words = [f"{number:05d}" * 4 for number in range(300)]
    table = table_of([[Pattern(PatternKind.CONTAINS, word)] for word in words + words])
    literals = build_literals(table)
    distinct_bytes = 2 * sum(map(len, words))  # each word is compared with both attributes
    assert len(literals.label) <= distinct_bytes + len(literals.root_child)
    own = sum(array.nbytes for name, array in literals._asdict().items() if name not in ("root", "root_child"))
    assert own <= 17 * len(literals.label) + 4 * (len(literals.shorter) + len(literals.of_pattern) + 1)


@pytest.mark.parametrize("kind", ["%{}%", "%{}"])
def test_nested_literals_are_reported_once_for_a_text(kind: str) -> None:
    """1,000 literals of a's in a text of 20,000: one by one that were 20 million reports."""
    patterns = [Pattern(PatternKind.CONTAINS, "a" * length) for length in range(1, 1001)]
    literals = build_literals(table_of([[pattern] for pattern in patterns]))
    found = find_literals(literals, texts_of(literals, ["a" * 20_000, "a" * 300 + "b" + "a" * 200]))
    assert np.diff(found.start).tolist() == [500, 150, 500, 150]
    texts = [f"s like '{kind.format('a' * length)}'" for length in range(1, 1001)]
    assert_index_agrees(texts, [{"s": "a" * 999}, {"s": "a" * 300 + "b"}, {"s": "b" + "a" * 3}])


def test_nested_prefixes_and_patterns_for_everything_agree_with_brute_force() -> None:
    texts = [
        *(f"s like '{'a' * length}%'" for length in range(1, 1000, 3)),
        *(f"s like '{'a' * length}%' and s like '%{'b' * length}'" for length in range(1, 60)),
        *("s like '%'" for _ in range(100)),
        *("s like '%a%'" for _ in range(700)),
        *(f"s like '%a%' and n between {i} and {i + 9}" for i in range(700)),
        *(f"s like '%a%' and not s like '%{'b' * (i % 7 + 1)}%' and n > {i}" for i in range(700)),
    ]
    rows: list[Row] = [{"s": s, "n": n} for s in ("", "a", "a" * 500 + "b" * 5, "bab", "é") for n in (3, 400)]
    assert_index_agrees(texts, [*rows, {"n": 1}, {"s": 1, "n": 1}, {"s": "aa"}])


@pytest.mark.parametrize("steps", [1, 9])
def test_patterns_with_keys_bounds_and_further_patterns_agree_with_brute_force(steps: int) -> None:
    random = np.random.default_rng(steps)
    words = ["a", "b", "ab", "ba", "aab", "é", "éb", "x_y", "50%", "漢", "🦊a"]

    def term() -> str:
        word = str(random.choice(words)).replace("%", r"\%").replace("_", r"\_")
        kind = str(random.choice(["%{}", "%{}%", "{}%", "{}"])).format(word)
        return f"{random.choice(['s', 't'])} {random.choice(['', '', 'not '])}like '{kind}'"

    def number() -> str:
        low = int(random.integers(9))
        return str(
            random.choice([f"n = {low}", f"n > {low}", f"n < {low}", f"n between {low} and {low + 2}", f"m != {low}"])
        )

    texts = [
        " and ".join([*(term() for _ in range(random.integers(1, 4))), *(number() for _ in range(random.integers(3)))])
        for _ in range(1200)
    ]
    rows: list[Row] = [
        {
            "s": "".join(random.choice(words, random.integers(0, 5))),
            "t": "".join(random.choice(words, random.integers(0, 3))),
            "n": int(random.integers(10)),
            **({"m": int(random.integers(10))} if random.random() < 0.5 else {}),
        }
        for _ in range(40)
    ]
    matcher = matcher_of(texts[: len(texts) // steps])
    for first in range(len(texts) // steps, len(texts), len(texts) // steps):
        part = texts[first : first + len(texts) // steps]
        matcher.add(np.arange(first, first + len(part)), part)
    assert matched(matcher, rows) == expected(texts, rows)
    gone = set(range(0, len(texts), 5))
    matcher.remove(sorted(gone))
    assert matched(matcher, rows) == [[i for i in ids if i not in gone] for ids in expected(texts, rows)]


def test_segments_written_before_literals_were_keys_still_open(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["s like '%ab'", "s like '%b%' and n > 1", "not s like '%a%'", "n = 1", "t like '%b' and s like 'a%'"]
    rows: list[Row] = [{"s": "ab", "t": "b", "n": 2}, {"s": "ba", "n": 1}, {"s": "", "t": "ab"}, {"n": 1}]
    with monkeypatch.context() as before:
        before.setattr(index, "choose_literals", lambda table, literals: no_literal_keys(table))
        old = matcher_of(texts)
    (placed,) = old._state.segments
    meta, arrays = placed.segment.to_arrays()
    assert not (arrays["index.key_dimension"] == LITERAL).any()
    kept = {name: array for name, array in arrays.items() if not name.startswith("literals.")}
    opened = old._state._replace(
        segments=(placed._replace(segment=PlainSegment.from_arrays(meta, kept, placed.filters)),)
    )
    old._state = opened
    assert matched(old, rows) == expected(texts, rows)


def no_literal_keys(table: FilterTable) -> LiteralKeys:
    return LiteralKeys(np.full(table.rows, NONE, np.int32), np.zeros(len(table.low), np.bool_))
