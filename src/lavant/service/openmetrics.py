"""Figures as OpenMetrics text, which Prometheus and others collect.

OpenMetrics 1.0: a family is its metadata and then its samples, a counter's samples end in `_total`, and the text ends
with `# EOF`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Family(msgspec.Struct, frozen=True):
    """Samples of one meaning, told apart by their labels."""

    name: str
    kind: str
    """`counter`, `gauge` or `info`."""
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]
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
        said = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        yield f"{family.name}{suffix}{f'{{{said}}}' if said else ''} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
