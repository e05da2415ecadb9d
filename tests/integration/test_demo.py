"""`lavant demo`, which `make run` runs: it checks its own deliveries, and can be read in a terminal of 80 columns."""

from __future__ import annotations

import os
import subprocess

from tests.integration.serving import LAVANT, WAIT_S_MAX

COLUMNS = 80


def test_the_demonstration_fits_into_a_terminal_and_misses_nothing() -> None:
    words = ("demo", "--seconds", "1", "--subscriptions", "1000")
    shown = subprocess.run(
        [str(LAVANT), *words],
        env={**os.environ, "COLUMNS": str(COLUMNS)},
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S_MAX,
        check=False,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    lines = shown.stdout.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert "…" not in shown.stdout, "a title or a figure is cut off"
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    *subscribers, total = cells
    assert {name: (missing, twice) for name, _, _, missing, twice, *_ in subscribers} == dict.fromkeys(
        ("ann", "bob", "cem", "dia"), ("0", "0")
    )
    assert all(figure != "0" for figure in total)
    latest = [line for line in lines if "←" in line]
    assert latest
    assert all("volume" in line and line[-1].isdigit() for line in latest), "a line is folded"
