"""Samples of `/metrics`, and the rates between two samples."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from lavant.cli.reports.fetch import fetch as fetch_http
from lavant.core.errors import AccessDenied, InvalidValue

QUEUES_SHOWN = 20
MEMORY_HIGH = 0.99
"""Share of the memory limit above which new data may be refused."""
_RATES = ("sent", "received", "acknowledged")


def rows(before: MetricsSample, after: MetricsSample, count: int = QUEUES_SHOWN) -> list[dict[str, float | str]]:
    """The busiest queues: by throughput, then by visible messages."""
    found: list[dict[str, float | str]] = []
    for queue in after.queues():
        row: dict[str, float | str] = {"queue": queue}
        for name in ("visible", "in_flight", "delayed"):
            row[name] = after.get(f"lavant_queue_{name}", queue)
        for name in _RATES:
            row[f"{name}_per_s"] = rate(before, after, f"lavant_queue_{name}_total", queue)
        row["oldest_s"] = after.get("lavant_queue_oldest_age_seconds", queue)
        found.append(row)
    found.sort(key=lambda row: (-sum(float(row[f"{name}_per_s"]) for name in _RATES), -float(row["visible"])))
    return found[:count]


def server(before: MetricsSample, after: MetricsSample) -> dict[str, float]:
    return {
        "requests_per_s": rate(before, after, "lavant_requests_total"),
        "connections": after.get("lavant_connections"),
        "waiting_receives": after.get("lavant_waiting_receives"),
        "journal_records_per_s": rate(before, after, "lavant_journal_records_total"),
        "stored_mb": after.get("lavant_stored_bytes") / 1e6,
        "memory_mb": after.get("lavant_memory_bytes") / 1e6,
        "memory_limit_mb": after.get("lavant_memory_limit_bytes") / 1e6,
        "is_storage_full": after.get("lavant_storage_full"),
    }


def screen(url: str, before: MetricsSample, after: MetricsSample) -> Group:
    figures = server(before, after)
    head = Text(f"{url}   {figures['requests_per_s']:,.0f} requests/s   {figures['connections']:,.0f} connections   ")
    head.append(f"{figures['journal_records_per_s']:,.0f} records/s   {figures['stored_mb']:,.1f} MB stored")
    if figures["memory_limit_mb"]:
        head.append(f"   memory {figures['memory_mb']:,.1f} of {figures['memory_limit_mb']:,.0f} MB")
        if figures["memory_mb"] > MEMORY_HIGH * figures["memory_limit_mb"]:
            head.append("   MEMORY FULL", style="bold red")
    if figures["is_storage_full"]:
        head.append("   DISK FULL", style="bold red")
    table = Table(box=None, pad_edge=False)
    table.add_column("queue", overflow="ellipsis", no_wrap=True)
    for name in ("visible", "in flight", "delayed", "sent/s", "received/s", "acked/s", "oldest s"):
        table.add_column(name, justify="right")
    busiest = rows(before, after)
    for row in busiest:
        queue, *numbers = row.values()
        table.add_row(str(queue), *(f"{number:,.0f}" for number in numbers if not isinstance(number, str)))
    more = len(after.queues()) - len(busiest) + int(after.get("lavant_queues_omitted"))
    return Group(head, Text(), table, Text(f"… and {more} more" if more > 0 else ""))


TIMEOUT_S = 5.0
BYTES_MAX = 64 << 20
_LINE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class MetricsSample(msgspec.Struct, frozen=True):
    """All metrics at one time, by name and by the label `queue`, if there is one."""

    time_s: float
    values: dict[tuple[str, str], float]

    def get(self, name: str, queue: str = "") -> float:
        return self.values.get((name, queue), 0.0)

    def queues(self) -> list[str]:
        return sorted({queue for name, queue in self.values if queue and name == "lavant_queue_visible"})


def parse(text: str, time_s: float) -> MetricsSample:
    """
    >>> parse('# TYPE x gauge\\nx{queue="a"} 2\\ny_total 3\\n# EOF\\n', 0.0).values
    {('x', 'a'): 2.0, ('y_total', ''): 3.0}
    """
    values: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        found = None if line.startswith("#") else _LINE.fullmatch(line)
        if found is not None:
            labels = dict(_LABEL.findall(found["labels"] or ""))
            key = found["name"], labels.get("queue", "")
            values[key] = values.get(key, 0.0) + float(found["value"])
    return MetricsSample(time_s, values)


def rate(before: MetricsSample, after: MetricsSample, name: str, queue: str = "") -> float:
    """Increase of a counter per second; 0 if it was reset."""
    span_s = after.time_s - before.time_s
    return max(0.0, after.get(name, queue) - before.get(name, queue)) / span_s if span_s > 0 else 0.0


def fetch(url: str, key: str, ca_file: Path | None, time_s: float) -> MetricsSample:
    """GET /metrics."""
    try:
        return parse(fetch_http(url, "/metrics", key, ca_file, timeout_s=TIMEOUT_S)[:BYTES_MAX].decode(), time_s)
    except InvalidValue as error:
        raise InvalidValue(f"{error}; start the server with --public-host and that name") from None
    except AccessDenied as error:
        raise AccessDenied(f"{url} refuses /metrics ({error}); give a key with --key") from None
