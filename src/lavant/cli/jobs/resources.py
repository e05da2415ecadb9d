"""`lavant resources`: measurements and decisions of the resource manager."""

from __future__ import annotations

from typing import Any

from lavant.cli.common import AsJson, CaFile, Key, Url, ask_http, print_json, print_table, time_of
from lavant.core.addresses import QUEUES_URL

SHOWN = 10


def resources(url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False) -> None:
    """Show the consumers of each topic, the measured rates, and the latest decisions with reasons."""
    view = ask_http(url, "/resources", key, ca_file)
    if as_json:
        print_json(view)
        return
    reached = "" if view["is_reached"] else "  out of reach"
    print(f"goal        {view['goal']} ({view['policy']}, {view['allocator']}){reached}")
    print(f"response    {_seconds(view['response_s'])} recently, {_seconds(view['predicted_s'])} predicted\n")
    columns = ("topic", "wanted", "running", "leaving", "died", "tasks", "tasks/s of one", "scv", "fault")
    rows = [
        (
            topic["topic"],
            *(str(topic[name]) for name in ("wanted", "running", "leaving", "died")),
            f"{topic['requests']:g}",
            _number(topic["service_rate_per_s"]),
            _number(topic["service_scv"]),
            topic["fault"],
        )
        for topic in view["topics"]
    ]
    print_table(columns, rows, numbers=columns[1:8])
    print()
    rows = [(job["job_type"], _number(job["arrival_rate_per_s"]), _number(job["arrival_scv"])) for job in view["jobs"]]
    print_table(("job type", "arrivals/s", "scv"), rows, numbers=("arrivals/s", "scv"))
    for decision in view["decisions"][:SHOWN]:
        print(f"\n{time_of(decision['time_ms'])}  {decision['action']}\n  because {decision['reason']}")


def _seconds(value: Any) -> str:
    return "unknown" if value is None else f"{value:.3g} s"


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:.3g}"
