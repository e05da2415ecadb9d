"""Figures as OpenMetrics text, which Prometheus and others collect.

OpenMetrics 1.0: a family is its metadata and then its samples, a counter's samples end in `_total`, and the text ends
with `# EOF`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from lavant.service.histograms import Histogram

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Family(msgspec.Struct, frozen=True):
    """Samples of one meaning, told apart by their labels."""

    name: str
    kind: str
    """`counter`, `gauge`, `info` or `histogram`."""
    help: str
    samples: Sequence[tuple[Mapping[str, str], float | Histogram]]
    """A histogram's samples are histograms, all others' are numbers."""
    unit: str = ""


def openmetrics(families: Iterable[Family]) -> str:
    """The whole text.

    >>> print(openmetrics([Family("tea_cups", "gauge", 'Cups of "tea"', [({"kind": 'a"b'}, 2)])]))
    # TYPE tea_cups gauge
    # HELP tea_cups Cups of \\"tea\\"
    tea_cups{kind="a\\"b"} 2
    # EOF
    <BLANKLINE>
    """
    return "".join(line + "\n" for family in families for line in _lines(family)) + "# EOF\n"


def _lines(family: Family) -> Iterable[str]:
    yield f"# TYPE {family.name} {family.kind}"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}"
    yield f"# HELP {family.name} {_escaped(family.help)}"
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
    said = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{f'{{{said}}}' if said else ''} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
