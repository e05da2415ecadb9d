"""Reports of a round: every publication once, in parts of bounded size."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lavant.broker.matching import Matches
from lavant.broker.protocol.match_protocol import OffsetRange
from lavant.pipeline.engine.rounds import reports


@given(
    lists=st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=6), min_size=1, max_size=12), ids_max=st.integers(1, 9)
)
def test_reports_hold_every_publication_and_are_bounded(lists: list[list[int]], ids_max: int) -> None:
    start = 70
    offsets = np.cumsum([0, *map(len, lists)])
    matches = Matches(offsets, np.array([id for each in lists for id in each], np.uint32))
    found = list(reports(OffsetRange("plain", "", "", 1, start, start + len(lists)), matches, ids_max))
    assert [each.start for each in found] == [start, *(each.end for each in found[:-1])]
    assert found[-1].end == start + len(lists)
    said = [
        matches.ids[matches.offsets[place] : matches.offsets[place + 1]].tolist()
        for matches in (each.matches() for each in found)
        for place in range(len(matches.offsets) - 1)
    ]
    assert said == lists
    assert all(each.end - each.start == 1 or len(each.ids) <= 4 * ids_max for each in found)
