"""Prints reproduced figures, and writes them: a page per paper, a picture per figure, CSV files of its parts."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from lavant.cli.common import print_table
from lavant.cli.planning.reproduce.registry import papers
from lavant.cli.reports.charts import Chart, ChartLine, picture, write_picture
from lavant.core.errors import InvalidValue
from lavant.simulation.figures import FigureChart, FigureEntry, FigureTable, Paper, PaperFigure

PAGE = "reproductions.md"
FILES = "reproductions"
ROWS_SHOWN = 12
Reproduced: TypeAlias = tuple[Paper, FigureEntry, PaperFigure]

HEADER = """# Reproductions

The experiments of the papers, run again with the machines that Lavant runs: what the paper says, what comes out,
and why they differ. `lavant reproduce --all --out docs` wrote these pages and their pictures, and `lavant reproduce
PAPER FIGURE --out docs` renews one figure. Strokes in the pictures are 95 % confidence intervals. [Papers](papers.md)
lists where each part is implemented.
"""


def print_figure(paper: Paper, entry: FigureEntry, figure: PaperFigure) -> None:
    """Print tables, a dozen rows of each chart, and the statements."""
    print(f"{paper.name}, {entry.heading}\n")
    for chart in figure.charts:
        print(f"{chart.title}; {chart.y_label}\n")
        columns = (chart.x_label, *(line.name for line in chart.lines))
        step = max(1, math.ceil(len(chart.xs) / ROWS_SHOWN))
        rows = [
            (f"{x:g}", *(_value(line.ys[place], line.half_widths[place : place + 1]) for line in chart.lines))
            for place, x in list(enumerate(chart.xs))[::step]
        ]
        print_table(columns, rows, numbers=columns)
        print()
    for table in figure.tables:
        print(f"{table.title}\n")
        print_table(table.columns, table.rows, numbers=table.columns[1:])
        print()
    for statement in figure.statements:
        print(f"Paper: {statement.paper}\nHere:  {statement.here}")
        if statement.why:
            print(f"Why:   {statement.why}")
        print()


def _value(y: float | None, half_width: Sequence[float]) -> str:
    if y is None:
        return "–"
    return f"{y:.5g} ± {half_width[0]:.2g}" if half_width and half_width[0] else f"{y:.5g}"


def write_figures(figures: Sequence[Reproduced], out: Path) -> None:
    """Write the files of these figures, renew their sections of the papers' pages, and list all pages."""
    folder = out / FILES
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for paper, entry, figure in figures:
            for name, text in files_of(paper, entry, figure).items():
                if name.endswith(".svg"):
                    write_picture(folder / name, text)
                else:
                    (folder / name).write_text(text, encoding="utf-8")
        for paper in {paper.name: paper for paper, _, _ in figures}.values():
            page = folder / f"{paper.name}.md"
            sections = sections_of(page.read_text(encoding="utf-8")) if page.exists() else {}
            sections |= {entry.name: section_of(of, entry, figure) for of, entry, figure in figures if of is paper}
            page.write_text(_page(paper, sections), encoding="utf-8")
        (out / PAGE).write_text(overview(folder), encoding="utf-8")
    except OSError as error:
        raise InvalidValue(f"cannot write the figures to {out}: {error.strerror}") from None


def overview(folder: Path) -> str:
    """The page that lists the figures whose sections are in the folder."""
    text = [HEADER]
    for paper in papers().values():
        page = folder / f"{paper.name}.md"
        sections = sections_of(page.read_text(encoding="utf-8")) if page.exists() else {}
        entries = [entry for entry in paper.figures if entry.name in sections]
        if entries:
            rows = "\n".join(
                f"| [{_short(entry)}]({FILES}/{paper.name}.md#{entry.name}) | {entry.title} |" for entry in entries
            )
            text.append(f"## {paper.name}\n\n{paper.citation}.\n\n| figure | shows |\n| --- | --- |\n{rows}\n")
    return "\n".join(text)


def _short(entry: FigureEntry) -> str:
    return entry.heading.partition(":")[0] if entry.heading != entry.title else entry.name


def files_of(paper: Paper, entry: FigureEntry, figure: PaperFigure) -> dict[str, str]:
    """The picture of the figure, and a CSV file of each chart and table, by name."""
    found = {name: _csv(part) for name, part in _parts(paper, entry, figure)}
    if figure.charts:
        found[f"{paper.name}-{entry.name}.svg"] = picture([_chart(chart) for chart in figure.charts])
    return found


def section_of(paper: Paper, entry: FigureEntry, figure: PaperFigure) -> str:
    """The section of the paper's page, after its anchor."""
    parts = [f"## {entry.heading}"]
    if figure.charts:
        parts.append(f"![{entry.title}]({paper.name}-{entry.name}.svg)")
    for table in figure.tables:
        rows = [table.columns, ("---",) * len(table.columns), *table.rows]
        lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        parts.append(f"{table.title}:\n\n{lines}")
    said = "\n".join(f"| {each.paper} | {each.here} | {each.why} |" for each in figure.statements)
    parts.append(f"| the paper | here | why they differ |\n| --- | --- | --- |\n{said}")
    links = ", ".join(f"[{name}]({name})" for name, _ in _parts(paper, entry, figure))
    parts.append(f"Data: {links}.")
    return "\n\n".join(parts)


def sections_of(page: str) -> dict[str, str]:
    """The sections of a page by figure; each follows its anchor."""
    pieces = re.split(r'<a id="(\S+)"></a>\n\n', page)[1:]
    return dict(zip(pieces[0::2], map(str.strip, pieces[1::2]), strict=True))


def _page(paper: Paper, sections: dict[str, str]) -> str:
    """The page of a paper with these sections, in its order."""
    text = [f"# {paper.name}\n\n{paper.citation}. {paper.about} [All reproductions](../{PAGE})."]
    text += [
        f'<a id="{entry.name}"></a>\n\n{sections[entry.name]}' for entry in paper.figures if entry.name in sections
    ]
    return "\n\n".join(text) + "\n"


def _parts(paper: Paper, entry: FigureEntry, figure: PaperFigure) -> Iterator[tuple[str, FigureChart | FigureTable]]:
    """Charts and tables with the names of their files; letters tell several of them apart."""
    parts: list[FigureChart | FigureTable] = [*figure.charts, *figure.tables]
    for number, part in enumerate(parts):
        letter = chr(ord("a") + number) if len(parts) > 1 else ""
        dash = "-" if letter and entry.name[-1].isalpha() else ""
        yield f"{paper.name}-{entry.name}{dash}{letter}.csv", part


def _csv(part: FigureChart | FigureTable) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    if isinstance(part, FigureTable):
        table.writerows([part.columns, *part.rows])
        return text.getvalue()
    columns = [part.x_label]
    for line in part.lines:
        columns += [line.name, f"{line.name} ±"] if line.half_widths else [line.name]
    table.writerow(columns)
    for place, x in enumerate(part.xs):
        row = [f"{x:g}"]
        for line in part.lines:
            y = line.ys[place]
            row.append("" if y is None else f"{y:.6g}")
            if line.half_widths:
                row.append("" if y is None else f"{line.half_widths[place]:.3g}")
        table.writerow(row)
    return text.getvalue()


def _chart(chart: FigureChart) -> Chart:
    lines = [
        ChartLine(
            line.name,
            chart.xs,
            [math.inf if y is None else y for y in line.ys],
            steps=line.steps,
            half_widths=line.half_widths,
        )
        for line in chart.lines
    ]
    return Chart(chart.title, chart.x_label, chart.y_label, lines, chart.limit, chart.y_max)
