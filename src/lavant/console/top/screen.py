"""The picture that `lavant top` draws: the server in some lines, then the busiest queues."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lavant.console.top.samples import Sample, rate

QUEUES_SHOWN = 20
MEMORY_HIGH = 0.99
"""Of the limit; then something new is refused now and then."""
_RATES = ("sent", "received", "acknowledged")


def rows(before: Sample, after: Sample, count: int = QUEUES_SHOWN) -> list[dict[str, float | str]]:
    """The busiest queues: those with the most coming and going, then the fullest."""
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


def server(before: Sample, after: Sample) -> dict[str, float]:
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


def screen(url: str, before: Sample, after: Sample) -> Group:
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
    shown = rows(before, after)
    for row in shown:
        queue, *numbers = row.values()
        table.add_row(str(queue), *(f"{number:,.0f}" for number in numbers if not isinstance(number, str)))
    more = len(after.queues()) - len(shown) + int(after.get("lavant_queues_omitted"))
    return Group(head, Text(), table, Text(f"… and {more} more" if more > 0 else ""))
