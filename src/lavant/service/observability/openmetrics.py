"""Metric families and histograms as OpenMetrics text, for Prometheus and others.

OpenMetrics 1.0: a family is its metadata and then its samples, a counter's samples end in `_total`, and the text ends
with `# EOF`.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate

import msgspec
import numpy as np
from numpy.typing import NDArray

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Counts by upper bound.

    >>> histogram = Histogram(bounds=(1.0, 5.0))
    >>> for value in (0.5, 1.0, 3.0, 9.0):
    ...     histogram.add(value)
    >>> list(histogram.cumulative()), histogram.sum
    ([('1.0', 2), ('5.0', 3), ('+Inf', 4)], 13.5)
    """

    def __init__(self, bounds: tuple[float, ...] = BOUNDS_S) -> None:
        self.sum = 0.0
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def add_all(self, values: NDArray[np.float64]) -> None:
        counts = np.bincount(np.searchsorted(self._bounds, values), minlength=len(self._counts))
        self._counts = [known + more for known, more in zip(self._counts, counts.tolist(), strict=True)]
        self.sum += float(values.sum())

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time a block of code, however it ends."""
        start_s = time.monotonic()
        try:
            yield
        finally:
            self.add(time.monotonic() - start_s)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """The number of values up to each bound; the last is the total."""
        return zip((*map(str, self._bounds), "+Inf"), accumulate(self._counts), strict=True)


CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

END = "# EOF\n"


class MetricFamily(msgspec.Struct, frozen=True):
    """Samples of one metric, distinguished by their labels."""

    name: str
    kind: str
    """`counter`, `gauge`, `info` or `histogram`."""
    help: str
    samples: Sequence[tuple[Mapping[str, str], float | Histogram]]
    """Histograms for kind `histogram`, numbers for all others."""
    unit: str = ""


def openmetrics(families: Iterable[MetricFamily]) -> str:
    """The text of all families.

    >>> print(openmetrics([MetricFamily("tea_cups", "gauge", 'Cups of "tea"', [({"kind": 'a"b'}, 2)])]))
    # TYPE tea_cups gauge
    # HELP tea_cups Cups of \\"tea\\"
    tea_cups{kind="a\\"b"} 2
    # EOF
    <BLANKLINE>
    """
    return "".join(map(family_text, families)) + END


def family_text(family: MetricFamily) -> str:
    return head(family.name, family.kind, family.help, family.unit) + "".join(f"{line}\n" for line in _lines(family))


def head(name: str, kind: str, help: str, unit: str = "") -> str:
    """The metadata of a family, before its samples."""
    unit_line = f"# UNIT {name} {unit}\n" if unit else ""
    return f"# TYPE {name} {kind}\n{unit_line}# HELP {name} {escaped(help)}\n"


def column(name: str, labels: Sequence[str], values: Sequence[float]) -> str:
    """Many samples of one family at once: labels are rendered already, in braces and with the space after them.

    >>> column("cups", ['{kind="a"} ', '{kind="b"} '], [1, 2.5])
    'cups{kind="a"} 1\\ncups{kind="b"} 2.5\\n'
    """
    return "".join([f"{name}{label}{value}\n" for label, value in zip(labels, values, strict=True)])


def _lines(family: MetricFamily) -> Iterable[str]:
    suffix = {"counter": "_total", "info": "_info"}.get(family.kind, "")
    for labels, value in family.samples:
        if isinstance(value, Histogram):
            yield from _histogram_lines(family.name, labels, value)
        else:
            yield _line(family.name + suffix, labels, value)


def _histogram_lines(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterable[str]:
    count = 0
    for bound, count in histogram.cumulative():
        yield _line(f"{name}_bucket", {**labels, "le": bound}, count)
    yield _line(f"{name}_count", labels, count)
    yield _line(f"{name}_sum", labels, histogram.sum)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    rendered = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    return f"{name}{f'{{{rendered}}}' if rendered else ''} {value}"


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
