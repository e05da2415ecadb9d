"""`lavant workflow check`: what it prints of definitions, and how it exits."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lavant import cli

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"


def lavant(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["lavant", "workflow", "check", *arguments])
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as exited:
        cli.app()
    return 0 if exited.value.code is None else int(exited.value.code)


def test_the_case_study_is_drawn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert lavant([str(EXAMPLES / "workflow-case-study.toml")], monkeypatch) == 0
    out = capsys.readouterr().out
    assert "type-1: visits A 1, B 1, D 1\n  unpack (A) ─► metadata (B) ─► classify (D)\n" in out
    assert "type-2: visits A 1, D 2\n  unpack (A) ─► classify (D) ─► predict (D)\n" in out
    assert "type-3: visits C 1, D 1\n  image (C) ─► classify (D)\n" in out
    assert [line.split() for line in out.splitlines() if line.startswith("type-3 ")] == [
        ["type-3", "–", "image"],
        ["type-3", "image", "classify"],
        ["type-3", "classify", "–"],
    ]


def test_a_job_that_forks_is_drawn_as_a_tree(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lavant([str(EXAMPLES / "workflow-fork-join.toml")], monkeypatch) == 0
    assert (
        """\
  load (load)
  ├─► left (fit) ─► join (draw, after all of 2)
  │  ├─ score >= 0.8 ► publish (publish, after any of 2)
  │  └─ score < 0.8 ► review (review) ─ accepted = true ► publish ↑
  ├─► right (fit) ─► join ↑
  └─► thumbnail (draw)
"""
        in capsys.readouterr().out
    )


def test_programs_read_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert lavant([str(EXAMPLES / "workflow-case-study.toml"), "--json"], monkeypatch) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["topics"] == ["A", "B", "C", "D"]
    assert [(job["name"], job["visits"]) for job in shown["jobs"]][1] == ("type-2", {"A": 1, "D": 2})
    assert shown["jobs"][0]["tasks"][0]["next"] == [{"task": "metadata", "when": ""}]


def test_a_mistake_is_one_message_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "circle.toml"
    file.write_text('topics = ["A"]\n[jobs.j]\nstart = "a"\ntasks.a = { topic = "A", next = "a" }\n')
    assert lavant([str(file)], monkeypatch) == 2
    assert "lavant: job type 'j' starts with 'a', which also follows 'a'" in capsys.readouterr().err
    assert lavant([str(tmp_path / "nothing.toml")], monkeypatch) == 2
    assert "nothing.toml: No such file" in capsys.readouterr().err
    file.write_bytes(b"\xff")
    assert lavant([str(file)], monkeypatch) == 2
    assert "byte 0" in capsys.readouterr().err
