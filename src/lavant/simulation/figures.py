"""Figures of papers as they come out here: charts, tables, and what the paper says beside them.

A package that reproduces a paper declares a `Paper` with its figures; `lavant reproduce` runs, prints and draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec


class FigureLine(msgspec.Struct, frozen=True, kw_only=True):
    """A series over the `xs` of its chart."""

    name: str
    ys: tuple[float | None, ...]
    """None where there is no value, such as where there is no steady state."""
    half_widths: tuple[float, ...] = ()
    """Of the 95 % confidence intervals of what is simulated."""
    steps: bool = False
    """Whether a value lasts until the next one."""


class FigureChart(msgspec.Struct, frozen=True, kw_only=True):
    """Axis labels name the quantity and its unit. `limit` is a line across, with its name."""

    title: str
    x_label: str
    y_label: str
    xs: tuple[float, ...]
    lines: tuple[FigureLine, ...]
    limit: tuple[str, float] | None = None
    y_max: float | None = None
    """Where the scale ends, if a few points would leave it."""


class FigureTable(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class FigureStatement(msgspec.Struct, frozen=True, kw_only=True):
    """What the paper says, what comes out here, and why they differ if they do."""

    paper: str
    here: str
    why: str = ""


class PaperFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure or table of a paper, as it comes out here."""

    charts: tuple[FigureChart, ...] = ()
    tables: tuple[FigureTable, ...] = ()
    statements: tuple[FigureStatement, ...]


Calls: TypeAlias = Sequence[tuple[dict[str, str], int]]
"""Parameters and a seed, as functions of sweeps take them."""
RunAll: TypeAlias = Callable[[str, Calls], Iterable[dict[str, Any]]]
"""Runs a function, `package.module:function`, for all calls, and returns the results in their order."""


def run_here(function: str, calls: Calls) -> Iterator[dict[str, Any]]:
    """One after another in this process."""
    module, _, name = function.partition(":")
    run = getattr(import_module(module), name)
    return (run(parameters, seed) for parameters, seed in calls)


class FigureSettings(NamedTuple):
    """Arguments of a reproduction; `report` is told of each step that is done."""

    seed: int = 1
    trades: Path | None = None
    """A recorded trading day, for figures that replay one."""
    report: Callable[[str], None] = lambda done: None
    quotes: Path | None = None
    """Daily quotes, for figures whose publishers publish quotes; drawn without it."""
    run_all: RunAll = run_here


class FigureEntry(NamedTuple):
    """A figure that can be run."""

    name: str
    """As the paper numbers it, such as 8 or table-1, or a word for an addition."""
    title: str
    steps: int
    """How often `report` is called."""
    run: Callable[[FigureSettings], PaperFigure]

    @property
    def heading(self) -> str:
        """
        >>> FigureEntry("8", "Hosts", 1, lambda settings: PaperFigure(statements=())).heading
        'Figure 8: Hosts'
        >>> FigureEntry("5.3-5.5", "Input", 1, lambda settings: PaperFigure(statements=())).heading
        'Figures 5.3 to 5.5: Input'
        """
        first, _, last = self.name.partition("-")
        if "." in first and last:
            return f"Figures {first} to {last}: {self.title}"
        if self.name.isdecimal() or "." in self.name:
            return f"Figure {self.name}: {self.title}"
        if self.name.startswith("table-"):
            return f"Table {self.name.removeprefix('table-')}: {self.title}"
        return self.title


class Paper(NamedTuple):
    name: str
    citation: str
    about: str
    """How the figures are made, in one or two sentences."""
    figures: tuple[FigureEntry, ...]
