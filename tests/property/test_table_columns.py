"""Columns of tables as attributes: decimals are ordered as they were, times like their texts."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal, localcontext

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lavant.core.publications.attributes import INTEGER_MAX
from lavant.pipeline.tables.columns import DIGITS_MAX, decimals, timestamps


@st.composite
def columns(draw: st.DrawFn) -> tuple[int, int, list[int | None]]:
    """Precision, scale and unscaled values, many of them with zeros at the end or near a limit."""
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    most = 10**precision - 1
    near = [10**DIGITS_MAX, INTEGER_MAX * 10**scale, 2**63, 2**64]
    values = st.one_of(
        st.none(),
        st.integers(-most, most),
        st.builds(lambda digits, zeros: digits * 10**zeros, st.integers(-999, 999), st.integers(0, 38)),
        st.builds(
            lambda bound, step, sign: sign * (bound + step),
            st.sampled_from(near),
            st.integers(-2, 2),
            st.sampled_from([1, -1]),
        ),
    )
    return (
        precision,
        scale,
        draw(st.lists(values.filter(lambda value: value is None or abs(value) <= most), max_size=12)),
    )


def is_exact(value: Decimal) -> bool:
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    return len(digits) <= DIGITS_MAX or (value == int(value) and abs(value) <= INTEGER_MAX)


@given(columns())
def test_decimals_have_the_nearest_doubles_in_the_same_order_or_are_refused(
    column: tuple[int, int, list[int | None]],
) -> None:
    precision, scale, unscaled = column
    with localcontext() as context:
        context.prec = 80
        values = [None if number is None else Decimal(number).scaleb(-scale) for number in unscaled]
        doubles, refused = decimals("x", pa.array([None, *values], pa.decimal128(precision, scale)).slice(1))
        kept = []
        for row, value in enumerate(values):
            double = doubles[row].as_py()
            assert (row in refused) == (value is not None and not is_exact(value))
            if value is None or row in refused:
                assert double is None
            else:
                assert double == float(value)
                kept.append((value, double))
        assert sorted(set(kept)) == sorted(set(kept), key=lambda pair: pair[1])
        assert len({value for value, _ in kept}) == len({double for _, double in kept})


@given(st.lists(st.datetimes(), max_size=12))
def test_texts_of_timestamps_are_ordered_like_time(moments: list[datetime]) -> None:
    texts, refused = timestamps("at", pa.array(moments, pa.timestamp("us")))
    assert not refused
    assert sorted(texts.to_pylist()) == [text for _, text in sorted(zip(moments, texts.to_pylist(), strict=True))]
    for moment, text in zip(moments, texts.to_pylist(), strict=True):
        assert datetime.fromisoformat(text.ljust(26, "0") if "." in text else text) == moment
