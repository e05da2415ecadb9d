"""The lines of the log."""

from __future__ import annotations

import json
import logging
import re
import sys

import pytest

from lavant.service.auth.audit.log import ORIGIN, Origin
from lavant.service.observability.logs import FORMATTERS, RepeatedFault


def line(format: str, text: str, *arguments: object, **more: object) -> str:
    record = logging.LogRecord("lavant.x", logging.WARNING, "", 0, text, arguments, None)
    record.__dict__.update(more)
    return FORMATTERS[format]().format(record)


def test_text_has_time_level_and_message() -> None:
    shown = line("text", "queue %s is full", "a")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING queue a is full", shown)


def test_json_is_one_object_with_the_same() -> None:
    shown = json.loads(line("json", "two\nlines", peer="192.0.2.1:7"))
    assert re.fullmatch(r"\d{4}-.*Z", shown.pop("time"))
    assert shown == {"level": "warning", "logger": "lavant.x", "peer": "192.0.2.1:7", "message": "two\nlines"}


@pytest.mark.parametrize("format", FORMATTERS)
def test_a_request_gives_its_peer(format: str) -> None:
    token = ORIGIN.set(Origin("http", "192.0.2.1:51310"))
    try:
        assert "192.0.2.1:51310" in line(format, "x")
    finally:
        ORIGIN.reset(token)
    assert "192.0.2.1" not in line(format, "x")


@pytest.mark.parametrize("format", FORMATTERS)
@pytest.mark.parametrize("name", ["a\nb", "a\r\x1b[2Jb", "a\u2028b", "\x00"])
def test_a_name_forges_no_line(format: str, name: str) -> None:
    shown = line(format, "queue %s", name)
    assert len(shown.encode().splitlines()) == 1
    assert shown.isprintable() or format == "json"


def test_a_traceback_is_in_the_json() -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        shown = json.loads(line("json", "failed", exc_info=sys.exc_info()))
    assert shown["traceback"].endswith("ValueError: bad")


def test_a_fault_that_repeats_has_a_line_a_minute_and_one_at_once_after_it_was_over() -> None:
    now_s = iter([0.0, 1.0, 2.0, 59.9, 60.0, 61.0, 62.0])
    fault = RepeatedFault(clock=lambda: next(now_s))
    assert [fault.add() for _ in range(6)] == [1, None, None, None, 4, None]
    fault.over()
    assert fault.add() == 1
