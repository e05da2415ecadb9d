"""Finds the literals of all suffix and contains patterns in a text, in one pass over its bytes.

For each string attribute that patterns compare there is an automaton of Aho and Corasick ("Efficient string matching",
1975) over the literals of its patterns, as flat arrays. Nodes are numbered level by level, so that the children of a
node are adjacent and sorted by their byte; the roots come first. Of the literals that end at a node, the longest is
kept with the node, and each literal links to the next shorter one of its kind.

    literals "ab", "b", "ba"        root ─a─► a ─b─► ab     contains: "ab", then "b"
                                     └──b──► b ─a─► ba      fallback of "ab" is "b", of "ba" is "a"

A literal is reported once for a text. Since all literals behind a reported one have been reported too, a search costs
the length of the text plus the number of literals found, however the literals are nested.

Room: 17 bytes for each node, of which there are at most as many as bytes in all distinct literals, 4 for each literal
and pattern, and 1 KB for each attribute. UTF-8 needs no care: a character's bytes occur in no other place of a text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lavant.broker.filters.algebra.constraints import PatternKind
from lavant.core.kernels.kernels import inlined_kernel, kernel

if TYPE_CHECKING:
    from lavant.broker.matching.plain.extras import ExtraConstraints
    from lavant.broker.matching.plain.table import FilterTable

NONE = -1
"""No literal, no root."""
SUFFIX, CONTAINS, KINDS = int(PatternKind.SUFFIX), int(PatternKind.CONTAINS), len(PatternKind)
BYTES = 256


class Literals(NamedTuple):
    """A literal is a text with an attribute and a kind of pattern; negated patterns have literals too."""

    of_pattern: NDArray[np.int32]
    """The literal of each pattern of the segment's extras."""
    root: NDArray[np.int32]
    """The root of each dimension's automaton, or NONE."""
    root_child: NDArray[np.int32]
    """By root and byte; a root itself where it has no such child."""
    first_child: NDArray[np.int32]
    label: NDArray[np.uint8]
    """The byte that leads to each node."""
    fallback: NDArray[np.int32]
    """The node of the longest proper suffix; a root's is the root."""
    contained: NDArray[np.int32]
    """The longest literal of a contains pattern that ends at the node, or NONE."""
    ending: NDArray[np.int32]
    """The longest literal of a suffix pattern that ends at the node, or NONE."""
    shorter: NDArray[np.int32]
    """By literal: the next shorter one of the same kind that ends where this one does, or NONE."""


class PatternLiterals(NamedTuple):
    """The part of `Literals` that a search of rows needs: each array that a kernel gets takes time."""

    of_pattern: NDArray[np.int32]
    root: NDArray[np.int32]


class FoundLiterals(NamedTuple):
    """The literals in each text: text t has those from `start[t]` to `start[t + 1]`, ascending."""

    start: NDArray[np.int64]
    literals: NDArray[np.int32]


class TextBatch(NamedTuple):
    """The strings of publications, for the attributes that patterns compare."""

    text: NDArray[np.int32]
    """By root and publication: the number of the text, or NONE."""
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    data: NDArray[np.uint8]


def build_literals(table: FilterTable) -> Literals:
    """Automata for the patterns of the table's extras."""
    extras = table.extras
    root = np.full(len(table.dimensions), NONE, np.int32)
    if not len(extras.pattern_kind):
        nothing = np.empty(0, np.int32)
        no_children = np.empty((0, BYTES), np.int32)
        return Literals(nothing, root, no_children, np.zeros(1, np.int32), np.empty(0, np.uint8), *[nothing] * 4)
    of_extra = np.repeat(np.arange(len(extras.predicate)), np.diff(extras.pattern_start))
    roots, root_of_pattern = np.unique(table.dimension[extras.predicate[of_extra]], return_inverse=True)
    root[roots] = np.arange(len(roots))
    offsets, data, rank = _distinct_texts(extras)
    # Texts by root and bytes, and literals by text and kind, are numbered in ascending order.
    texts, text_of_pattern = np.unique(root_of_pattern * len(offsets) + rank, return_inverse=True)
    kind = extras.pattern_kind % KINDS
    literals, of_pattern = np.unique(text_of_pattern * KINDS + kind, return_inverse=True)
    literal = np.full((len(texts), KINDS), NONE, np.int32)
    literal[literals // KINDS, literals % KINDS] = np.arange(len(literals))
    first_text = np.searchsorted(texts, np.arange(len(roots) + 1) * len(offsets))
    of_text = texts % len(offsets)
    nodes_max = len(roots) + int((offsets[of_text + 1] - offsets[of_text]).sum())
    root_child = np.repeat(np.arange(len(roots), dtype=np.int32), BYTES).reshape(-1, BYTES)
    first_child, fallback, contained, ending = (np.empty(nodes_max + 1, np.int32) for _ in range(4))
    label = np.zeros(nodes_max, np.uint8)
    shorter = np.full(len(literals), NONE, np.int32)
    built = Literals(
        of_pattern.astype(np.int32), root, root_child, first_child, label, fallback, contained, ending, shorter
    )
    nodes = _build_automata(first_text, offsets[of_text], offsets[of_text + 1], data, literal, built)
    return built._replace(
        first_child=first_child[: nodes + 1].copy(),
        label=label[:nodes].copy(),
        fallback=fallback[:nodes].copy(),
        contained=contained[:nodes].copy(),
        ending=ending[:nodes].copy(),
    )


def _distinct_texts(extras: ExtraConstraints) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
    """The distinct literals, sorted, as offsets and bytes; and the number of each pattern's among them."""
    starts = extras.literal_start.astype(np.int64)
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(np.ascontiguousarray(extras.literal_data))]
    encoded = pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers).dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    _, offsets, data = encoded.dictionary.take(order).buffers()
    ends = np.frombuffer(offsets, np.int64)[: len(order) + 1]
    blob = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return ends.copy(), blob[: ends[-1]].copy(), rank[encoded.indices.to_numpy()]


@kernel
def _build_automata(
    first_text: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    data: NDArray[np.uint8],
    literal: NDArray[np.int32],
    built: Literals,
) -> int:
    """Fill the arrays, node by node, and return the number of nodes.

    A node stands for the texts from `low` to `high`, which begin with the same `depth` bytes.
    """
    roots = len(first_text) - 1
    low, high = np.empty(len(built.label), np.int32), np.empty(len(built.label), np.int32)
    depth = np.empty(len(built.label), np.int32)
    for r in range(roots):
        low[r], high[r], depth[r] = first_text[r], first_text[r + 1], 0
        built.fallback[r] = r
    nodes = roots
    n = 0
    while n < nodes:
        built.first_child[n] = nodes
        t = low[n]
        is_whole = end[t] - start[t] == depth[n]  # sorted: only the first text can end here
        for kind, longest in ((SUFFIX, built.ending), (CONTAINS, built.contained)):
            longest[n] = longest[built.fallback[n]] if n >= roots else NONE
            if is_whole and literal[t, kind] != NONE:
                built.shorter[literal[t, kind]] = longest[n]
                longest[n] = literal[t, kind]
        t += is_whole
        while t < high[n]:
            byte = data[start[t] + depth[n]]
            last = t + 1
            while last < high[n] and data[start[last] + depth[n]] == byte:
                last += 1
            low[nodes], high[nodes], depth[nodes] = t, last, depth[n] + 1
            built.label[nodes] = byte
            if n < roots:
                built.root_child[n, byte] = nodes
                built.fallback[nodes] = n
            else:
                built.fallback[nodes] = _step(built, roots, built.fallback[n], byte)
            nodes += 1
            t = last
        n += 1
    built.first_child[nodes] = nodes
    return nodes


@inlined_kernel
def _step(literals: Literals, roots: int, node: int, byte: int) -> int:
    """The node after one more byte."""
    while node >= roots:
        low, high = literals.first_child[node], literals.first_child[node + 1]
        while low < high:
            middle = (low + high) // 2
            label = literals.label[middle]
            if label == byte:
                return int(middle)
            if label < byte:
                low = middle + 1
            else:
                high = middle
        node = literals.fallback[node]
    return int(literals.root_child[node, byte])


@kernel
def find_literals(literals: Literals, texts: TextBatch) -> FoundLiterals:
    """The literals of the patterns in each text that a publication has."""
    root_of = np.full(len(texts.start), NONE, np.int32)
    for r in range(len(literals.root_child)):
        for e in range(texts.text.shape[1]):
            if texts.text[r, e] != NONE:
                root_of[texts.text[r, e]] = r
    start = np.zeros(len(root_of) + 1, np.int64)
    found = np.empty(64 + 16 * len(root_of), np.int32)
    seen = np.zeros((len(literals.shorter) + 63) // 64, np.uint64)
    count = 0
    for t in range(len(root_of)):
        if root_of[t] != NONE:
            first = count
            found, count, node = _scan(literals, root_of[t], texts, t, seen, found, count)
            for f in range(first, count):
                seen[found[f] >> 6] = 0
            literal = literals.ending[node]
            while literal != NONE:
                if count == len(found):
                    found = _grow(found)
                found[count] = literal
                count += 1
                literal = literals.shorter[literal]
            _sort(found, first, count)
        start[t + 1] = count
    return FoundLiterals(start, found[:count])


@kernel
def _scan(
    literals: Literals,
    root: int,
    texts: TextBatch,
    t: int,
    seen: NDArray[np.uint64],
    found: NDArray[np.int32],
    count: int,
) -> tuple[NDArray[np.int32], int, int]:
    """Add the literals of contains patterns in a text to those found; also their number, and the last node."""
    roots = len(literals.root_child)
    node, place = int(root), texts.start[t]
    literal = literals.contained[node]
    while True:
        while literal != NONE:
            word, bit = literal >> 6, np.uint64(1) << np.uint64(literal & 63)
            if seen[word] & bit:
                break  # this literal and the shorter ones behind it are known
            seen[word] |= bit
            if count == len(found):
                found = _grow(found)
            found[count] = literal
            count += 1
            literal = literals.shorter[literal]
        if place == texts.end[t]:
            return found, count, node
        node = _step(literals, roots, node, texts.data[place])
        literal = literals.contained[node]
        place += 1


@inlined_kernel
def has_literal(found: FoundLiterals, text: int, literal: int) -> bool:
    """Whether the literal is in the text; there is none in no text."""
    if text < 0:
        return False
    low, high = found.start[text], found.start[text + 1]
    while low < high:
        middle = (low + high) // 2
        if found.literals[middle] < literal:
            low = middle + 1
        else:
            high = middle
    return bool(low < found.start[text + 1] and found.literals[low] == literal)


@kernel
def _sort(found: NDArray[np.int32], first: int, last: int) -> None:
    """Sort a part: a few by insertion, many by Numba's own, which makes a copy."""
    if last - first > 32:
        found[first:last] = np.sort(found[first:last])
        return
    for i in range(first + 1, last):
        literal = found[i]
        j = i
        while j > first and found[j - 1] > literal:
            found[j] = found[j - 1]
            j -= 1
        found[j] = literal


@kernel
def _grow(array: NDArray[np.int32]) -> NDArray[np.int32]:
    larger = np.empty(2 * len(array), array.dtype)
    for k in range(len(array)):
        larger[k] = array[k]
    return larger
