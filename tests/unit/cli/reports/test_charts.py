"""Charts as SVG: well-formed, and what is drawn is what was given."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lavant.cli.reports.charts import Chart, ChartLine, picture, ticks, write_picture
from lavant.core.errors import InvalidValue

SVG = "{http://www.w3.org/2000/svg}"


def strokes(svg: str) -> list[str]:
    """The paths of lines: they have a width, grid lines have none."""
    return [str(p.get("d")) for p in ElementTree.fromstring(svg).iter(f"{SVG}path") if p.get("stroke-width")]


def test_a_picture_is_well_formed_whatever_names_hold() -> None:
    svg = picture([Chart("<a> & 'b'", "x", "y", [ChartLine('"quoted" <line>', [0, 1], [1, 2])])])
    texts = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert "<a> & 'b'" in texts
    assert '"quoted" <line>' in texts


def test_larger_values_are_higher_and_later_ones_further_right() -> None:
    (stroke,) = strokes(picture([Chart("t", "x", "y", [ChartLine("a", [0, 1, 2], [1, 3, 2])])]))
    points = [tuple(map(float, pair)) for pair in re.findall(r"[ML](\S+?) ([\d.]+)", stroke)]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert points[1][1] < points[2][1] < points[0][1]


def test_what_is_infinite_or_missing_breaks_the_line() -> None:
    (stroke,) = strokes(
        picture([Chart("t", "x", "y", [ChartLine("a", [0, 1, 2, 3, 4], [1, 2, math.inf, math.nan, 1])])])
    )
    assert stroke.count("M") == 2


def test_steps_go_sideways_before_they_go_up() -> None:
    (stroke,) = strokes(picture([Chart("t", "x", "y", [ChartLine("a", [0, 1], [1, 2], steps=True)])]))
    assert re.fullmatch(r"M\S+ \S+H[\d.]+V[\d.]+", stroke)


def test_a_fixed_scale_clips_and_marks_the_highest_value() -> None:
    chart = Chart("t", "x", "y", [ChartLine("a", [0, 1, 2], [1, 30, 2])], y_max=10.0)
    texts = [text.text for text in ElementTree.fromstring(picture([chart])).iter(f"{SVG}text")]
    assert "▲ 30" in texts
    assert "▲ 30" not in picture([chart._replace(y_max=40.0)])


def test_a_line_leaves_the_chart_where_it_is_clipped_and_comes_back() -> None:
    chart = Chart("t", "x", "y", [ChartLine("a", [0, 1, 2, 3, 4], [5, 15, 15, 15, 5])], y_max=10.0)
    (stroke,) = strokes(picture([chart]))
    points = [(float(x), float(y)) for x, y in re.findall(r"[ML](\S+?) ([\d.]+)", stroke)]
    assert stroke.count("M") == 2
    assert [y for _, y in points] == [146.0, 36.0, 36.0, 146.0]
    assert points[2][0] - points[1][0] == pytest.approx(3 * (points[1][0] - points[0][0]) * 2, abs=0.5)


@given(st.lists(st.floats(0, 30), min_size=1, max_size=12), st.booleans())
def test_no_line_is_drawn_outside_the_chart(ys: list[float], steps: bool) -> None:
    line = ChartLine("a", list(range(len(ys))), ys, steps=steps)
    for stroke in strokes(picture([Chart("t", "x", "y", [line], y_max=10.0)])):
        places = [float(y) for y in re.findall(r"(?:[ML]\S+? |V)([\d.]+)", stroke)]
        assert all(36.0 <= place <= 256.0 for place in places)


def test_whole_values_have_whole_ticks() -> None:
    lines = [ChartLine("a", [3, 4], [1, 2])]
    svg = ElementTree.fromstring(picture([Chart("t", "x", "y", lines)]))
    texts = [str(text.text) for text in svg.iter(f"{SVG}text")]
    assert [text for text in texts if re.fullmatch(r"[\d.]+", text)] == ["0", "1", "2", "3", "4"]


def test_a_logarithmic_scale_has_equal_steps_for_equal_ratios() -> None:
    chart = Chart("t", "x", "y", [ChartLine("a", [0, 1, 2], [1, 10, 100])], is_log=True)
    (stroke,) = strokes(picture([chart]))
    low, middle, high = (float(y) for _, y in re.findall(r"[ML](\S+?) ([\d.]+)", stroke))
    assert low - middle == pytest.approx(middle - high, abs=0.2)


def test_a_choice_is_marked_where_it_is() -> None:
    chart = Chart("t", "x", "y", [ChartLine("a", [0, 10], [1, 2])], choice=("chosen", 5.0))
    svg = picture([chart])
    assert "M317.0 36V256" in svg
    assert ">chosen</text>" in svg


def test_names_are_at_the_ends_of_their_lines_and_do_not_overlap() -> None:
    lines = [ChartLine(f"line {n}", [0, 1], [0, 5 + n / 100]) for n in range(4)]
    svg = ElementTree.fromstring(picture([Chart("t", "x", "y", [*lines, ChartLine("line low", [0, 1], [0, 0])])]))
    places = {str(t.text): float(t.get("y", "")) for t in svg.iter(f"{SVG}text") if str(t.text).startswith("line")}
    assert max(places, key=places.__getitem__) == "line low"
    ordered = sorted(places.values())
    assert all(after - before >= 15 for before, after in itertools.pairwise(ordered))


def test_charts_without_points_and_with_a_single_one_can_be_drawn() -> None:
    svg = picture([Chart("t", "x", "y", []), Chart("t", "x", "y", [ChartLine("a", [3], [5])], ("limit", 5.0))])
    assert len(strokes(svg)) == 1


def test_highest_values_do_not_overlap_each_other_or_the_axis() -> None:
    lines = [ChartLine(f"line {n}", [0, 1, 2], [190_000.0 + n, 1, 1]) for n in range(3)]
    svg = ElementTree.fromstring(picture([Chart("t", "x", "y", lines, y_max=2.0)]))
    peaks = [(float(t.get("x", "")), str(t.text)) for t in svg.iter(f"{SVG}text") if str(t.text).startswith("▲")]
    assert [text for _, text in peaks] == ["▲ 190,000", "▲ 190,001", "▲ 190,002"]
    assert peaks[0][0] - 3 * len(peaks[0][1]) >= 64
    assert all(after - before >= 6 * len("▲ 190,000") for (before, _), (after, _) in itertools.pairwise(peaks))


def test_a_lone_point_can_be_seen() -> None:
    (stroke,) = strokes(picture([Chart("t", "x", "y", [ChartLine("a", [0, 1, 2], [math.nan, 5, math.nan])])]))
    assert re.fullmatch(r"M\S+ \S+h8", stroke)


def test_a_picture_is_wide_enough_for_the_longest_label() -> None:
    """In DejaVu Sans, which is wide, a bold letter of 12 pixels takes up to 7.3 of them on average."""
    for name in ("a", "out-of-order, predicted", "the most that a queue has ever been asked to hold"):
        svg = ElementTree.fromstring(
            picture([Chart("t", "x", "y", [ChartLine("a", [0], [1])]), Chart("t", "x", "y", [], (name, 1.0))])
        )
        label = next(text for text in svg.iter(f"{SVG}text") if text.text == name)
        assert float(label.get("x", "")) + 7.3 * len(name) <= float(svg.get("width", ""))


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_a_handful_of_even_numbers_within_the_range(low: float, size: float) -> None:
    found = ticks(low, low + size)
    assert 1 <= len(found) <= 7
    assert all(low - size * 1e-6 <= tick <= low + size * (1 + 1e-6) for tick in found)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"cannot write the picture to .*: No such file"):
        write_picture(tmp_path / "no" / "p.svg", "<svg/>")
