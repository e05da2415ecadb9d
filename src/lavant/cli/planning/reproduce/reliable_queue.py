"""`lavant reproduce reliable-queue`: Figures 11 to 15 of the reliable-queue paper."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lavant.cli.common import AsJson, print_table, progress
from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from lavant.cli.reports.charts import Chart
    from lavant.simulation.reliable_queue.reproduction import PaperFigure

PICTURE = "reliable-queue-{number}.svg"
TABLE = "reliable-queue-{name}.csv"
PAGE = "reliable-queue.md"
ROWS_SHOWN = 12


def reliable_queue(
    figure: Annotated[
        str | None, typer.Argument(help="figure to show: 11 to 15, or one part of it, such as 12a")
    ] = None,
    messages: Annotated[int, typer.Option(help="messages of each simulation", min=1_000, max=10_000_000)] = 20_000,
    output: Annotated[
        Path | None,
        typer.Option(help="directory for a chart (SVG) of each figure, a table (CSV) of each part, and a page of all"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Delivery time, waiting and utilisation of the reliable queue: predicted, and simulated with Lavant's own queue.

    Takes about a minute.
    """
    import msgspec  # noqa: PLC0415

    from lavant.simulation.reliable_queue.reproduction import reproduce, tasks  # noqa: PLC0415

    if figure is not None and figure.rstrip("abc") not in {"11", "12", "13", "14", "15"}:
        raise InvalidValue(f"there is no figure {figure!r}; there are 11 to 15, with parts such as 12a")
    with progress("reliable queue", tasks()) as report:
        found = reproduce(messages=messages, report=report)
    shown = [each for each in found if figure is None or each.name.startswith(figure)]
    if output is not None:
        _write(shown, output, messages)
    if as_json:
        print(msgspec.json.encode(shown).decode())
        return
    for each in shown:
        _print(each)


def _print(figure: PaperFigure) -> None:
    print(f"Figure {figure.name}: {figure.title}; {figure.y_label}\n")
    names = [line.name for line in figure.lines]
    step = max(1, math.ceil(len(figure.xs) / ROWS_SHOWN))
    rows = [
        (f"{x:g}", *(_value(line.ys[place], line.half_widths[place : place + 1]) for line in figure.lines))
        for place, x in list(enumerate(figure.xs))[::step]
    ]
    print_table((figure.x_label, *names), rows, numbers=(figure.x_label, *names))
    print(f"\nPaper: {figure.paper}\nHere:  {figure.here}\n")


def _value(y: float | None, half_width: tuple[float, ...]) -> str:
    if y is None:
        return "unstable"
    return f"{y:.4f} ± {half_width[0]:.4f}" if half_width and half_width[0] else f"{y:.4f}"


def _write(figures: list[PaperFigure], output: Path, messages: int) -> None:
    from lavant.cli.reports.charts import picture, write_picture  # noqa: PLC0415

    output.mkdir(parents=True, exist_ok=True)
    (output / PAGE).write_text(_page(figures, messages), encoding="utf-8")
    for number in sorted({figure.name[:2] for figure in figures}):
        charts = [_chart(figure) for figure in figures if figure.name.startswith(number)]
        write_picture(output / PICTURE.format(number=number), picture(charts))
    for figure in figures:
        with (output / TABLE.format(name=figure.name)).open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow([figure.x_label, *(line.name for line in figure.lines)])
            for place, x in enumerate(figure.xs):
                table.writerow(
                    [x, *("" if line.ys[place] is None else f"{line.ys[place]:.6g}" for line in figure.lines)]
                )


def _page(figures: list[PaperFigure], messages: int) -> str:
    """All figures as Markdown: pictures, what the paper says, what comes out."""
    parts = [
        "# Reliable queue: Figures 11 to 15\n\nWritten by `lavant reproduce reliable-queue --messages "
        f"{messages} --output DIR`. Predicted: the equations of [queue models](../queue-models.md). Simulated: "
        f"Lavant's own queue machine in virtual time, {messages:,} messages a point; strokes are 95 % "
        "confidence intervals."
    ]
    for number in sorted({figure.name[:2] for figure in figures}):
        same = [figure for figure in figures if figure.name.startswith(number)]
        tables = ", ".join(f"[{figure.name}]({TABLE.format(name=figure.name)})" for figure in same)
        parts.append(f"## Figure {number}\n\n![Figure {number}]({PICTURE.format(number=number)})")
        said = dict.fromkeys((figure.paper, figure.here) for figure in same)
        rows = "\n".join(f"| {paper} | {here} |" for paper, here in said)
        parts.append(f"| the paper | here |\n| --- | --- |\n{rows}\n\nTables: {tables}.")
    return "\n\n".join(parts) + "\n"


def _chart(figure: PaperFigure) -> Chart:
    from lavant.cli.reports.charts import Chart, ChartLine  # noqa: PLC0415

    steady = [y for line in figure.lines for y in line.ys if y is not None]
    top = 8.0 * sorted(steady)[len(steady) // 2]
    lines = [
        ChartLine(line.name, figure.xs, [math.inf if y is None else y for y in line.ys], half_widths=line.half_widths)
        for line in figure.lines
    ]
    y_max = top if max(steady) > 2 * top else None
    return Chart(f"{figure.name}  {figure.title}", figure.x_label, figure.y_label, lines, y_max=y_max)
