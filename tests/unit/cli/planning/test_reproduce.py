"""`lavant reproduce`: its list, its files, and the page in the documentation, which is current."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lavant.cli import commands
from lavant.cli.planning.reproduce import pages, registry
from lavant.core.errors import InvalidValue
from lavant.simulation.figures import FigureSettings
from lavant.simulation.placement import elastic, figures
from lavant.simulation.placement.load_curves import ramp

DOCS = Path(__file__).parents[4] / "docs"
QUICK = (
    ("allocation", "4"),
    ("e-streamhub", "5"),
    ("e-streamhub", "table-1"),
    ("publisher", "14"),
    ("publisher", "table-2"),
    ("reliable-queue", "14"),
    ("reliable-queue", "15"),
    ("balancing", "5.15"),
)
ALL = [(paper.name, entry.name) for paper in registry.papers().values() for entry in paper.figures]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(commands, ["reproduce", *arguments], env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def check_is_current(paper_name: str, figure_name: str) -> None:
    """The files and the section of the page are what comes out, and progress is told as often as announced."""
    ((paper, entry),) = registry.selected(paper_name, figure_name)
    told: list[str] = []
    figure = entry.run(FigureSettings(report=told.append))
    assert len(told) == entry.steps
    for name, text in pages.files_of(paper, entry, figure).items():
        assert (DOCS / pages.FILES / name).read_text() == text, f"{name} is not current: make it with lavant reproduce"
    assert pages.section_of(paper, entry, figure) in (DOCS / pages.FILES / f"{paper_name}.md").read_text()


@pytest.mark.parametrize(("paper", "figure"), QUICK)
def test_the_documentation_shows_what_comes_out(paper: str, figure: str) -> None:
    check_is_current(paper, figure)


@pytest.mark.soak
@pytest.mark.parametrize(("paper", "figure"), [each for each in ALL if each not in QUICK])
def test_the_documentation_shows_what_comes_out_of_long_runs(paper: str, figure: str) -> None:
    check_is_current(paper, figure)


def test_the_pages_have_a_section_for_each_figure_and_no_other_files_lie_beside_them() -> None:
    folder = DOCS / pages.FILES
    texts = {paper: (folder / f"{paper}.md").read_text() for paper in registry.papers()}
    assert [(paper, figure) for paper, text in texts.items() for figure in pages.sections_of(text)] == ALL
    assert (DOCS / pages.PAGE).read_text() == pages.overview(folder)
    known = {f"{paper}.md" for paper in texts}
    linked = "".join(texts.values())
    assert [each.name for each in folder.iterdir() if each.name not in known and f"]({each.name})" not in linked] == []


def test_without_arguments_papers_and_figures_are_listed() -> None:
    listed = [line.split()[:2] for line in run().splitlines()[1:]]
    assert [tuple(each) for each in listed] == ALL
    assert [(each["paper"], each["figure"]) for each in json.loads(run("--json"))] == ALL


def test_a_figure_is_printed_with_what_the_paper_says() -> None:
    shown = run("e-streamhub", "5")
    assert "AP:1, AP:2, EP:1, EP:2 move to 1 new host" in shown
    assert "Paper: AP:1, AP:2, EP:1 and EP:2 move to one new host" in shown


def test_figures_that_are_run_again_replace_their_sections_only(tmp_path: Path) -> None:
    def page(paper: str) -> str:
        return (tmp_path / pages.FILES / f"{paper}.md").read_text()

    run("e-streamhub", "5", "--out", str(tmp_path))
    first = page("e-streamhub")
    assert list(pages.sections_of(first)) == ["5"]
    found = json.loads(run("reliable-queue", "15", "--out", str(tmp_path), "--json"))
    assert (found[0]["paper"], found[0]["figure"], len(found[0]["charts"])) == ("reliable-queue", "15", 3)
    run("reliable-queue", "14", "--out", str(tmp_path))
    assert page("e-streamhub") == first
    assert list(pages.sections_of(page("reliable-queue"))) == ["14", "15"]
    overview = (tmp_path / pages.PAGE).read_text()
    assert overview.count("](reproductions/") == 3
    names = sorted(path.name for path in (tmp_path / pages.FILES).iterdir())
    assert names == [
        "e-streamhub-5.svg",
        "e-streamhub-5a.csv",
        "e-streamhub-5b.csv",
        "e-streamhub.md",
        "reliable-queue-14.svg",
        *(f"reliable-queue-14{letter}.csv" for letter in "abc"),
        "reliable-queue-15.svg",
        *(f"reliable-queue-15{letter}.csv" for letter in "abc"),
        "reliable-queue.md",
    ]
    last = (tmp_path / pages.FILES / "reliable-queue-15a.csv").read_text().splitlines()[-1]
    assert last == "90,,,"  # not even nine threads are stable there


def test_unknown_papers_and_figures_are_refused_with_those_that_exist(tmp_path: Path) -> None:
    for arguments, message in (
        (("queue",), "there is no paper 'queue'; there are allocation, e-streamhub"),
        (("reliable-queue", "10"), "there is no figure '10' of reliable-queue; there are 11, 12, 13, 14, 15"),
        (("allocation", "--all"), "--all runs all papers, got the paper 'allocation' too"),
    ):
        with pytest.raises(InvalidValue, match=message):
            run(*arguments)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidValue, match="cannot write the figures to"):
        run("e-streamhub", "5", "--out", str(tmp_path / "file"))


def test_all_policies_are_compared_under_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic, "ramp", lambda: ramp(rise_s=150, hold_s=30, rest_s=20))
    costs, delays = figures.figure_8(FigureSettings()).tables
    assert [row[0] for row in costs.rows] == [row[0] for row in delays.rows] == ["threshold", "forecast", "static"]
    assert costs.rows[2][1] == "15 to 15"


def test_a_recorded_day_is_replayed_and_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    times_ms = np.repeat(np.arange(0, 3_600_000, 500), 2)
    pq.write_table(pa.table({"ms": times_ms}), tmp_path / "trades.parquet")
    day = elastic.day_load(tmp_path / "trades.parquet", seed=1)
    assert (day.name.startswith("day (recorded"), len(day.curve)) == (True, 180)
    assert day.curve.max() == pytest.approx(190)
    (tmp_path / "other").write_bytes(b"no table")
    with pytest.raises(InvalidValue, match="no Parquet file with a column ms"):
        elastic.day_load(tmp_path / "other", seed=1)
