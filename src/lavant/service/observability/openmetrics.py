"""Figures as OpenMetrics text, which Prometheus and others collect.

OpenMetrics 1.0: a family is its metadata and then its samples, a counter's samples end in `_total`, and the text ends
with `# EOF`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from lavant.service.observability.histograms import Histogram

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

END = "# EOF\n"


class MetricFamily(msgspec.Struct, frozen=True):
    """Samples of one meaning, told apart by their labels."""

    name: str
    kind: str
    """`counter`, `gauge`, `info` or `histogram`."""
    help: str
    samples: Sequence[tuple[Mapping[str, str], float | Histogram]]
    """A histogram's samples are histograms, all others' are numbers."""
    unit: str = ""


def openmetrics(families: Iterable[MetricFamily]) -> str:
    """The whole text.

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
    """What comes before the samples of a family."""
    said = f"# UNIT {name} {unit}\n" if unit else ""
    return f"# TYPE {name} {kind}\n{said}# HELP {name} {escaped(help)}\n"


def column(name: str, labels: Sequence[str], values: Sequence[float]) -> str:
    """Samples of one family, for many at once: labels are text already, in braces and with the blank behind it.

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
    said = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    return f"{name}{f'{{{said}}}' if said else ''} {value}"


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
