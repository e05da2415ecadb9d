"""`lavant resources`: measurements and decisions of the resource manager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lavant.cli.common import AsJson, CaFile, Key, Url, print_json, print_table, time_of
from lavant.core.errors import InvalidValue, MissingComponent
from lavant.core.ports import QUEUES_URL

SHOWN = 10
TIMEOUT_S = 5.0


def resources(url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False) -> None:
    """Show the consumers of each topic, the measured rates, and the latest decisions with reasons."""
    view = _fetch(url, key, ca_file)
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


def _fetch(url: str, key: str, ca_file: Path | None) -> dict[str, Any]:
    """GET /resources: HTTP shares the port."""
    import json  # noqa: PLC0415
    import ssl  # noqa: PLC0415
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    from lavant.cli.reports.doctor import http_address  # noqa: PLC0415

    address = http_address(url)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    context = ssl.create_default_context(cafile=ca_file) if address.startswith("https") else None
    try:
        request = urllib.request.Request(f"{address}/resources", headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as response:
            view: dict[str, Any] = json.load(response)
            return view
    except urllib.error.HTTPError as error:
        raise InvalidValue(json.loads(error.read())["error"]["reason"]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise MissingComponent(f"no server answers at {address}: {reason}; start one with `lavant serve`") from None


def _seconds(value: Any) -> str:
    return "unknown" if value is None else f"{value:.3g} s"


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:.3g}"
