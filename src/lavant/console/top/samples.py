"""A server's figures as it tells them at `/metrics`, and what two of them say about the time between."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from http import HTTPStatus

import msgspec

from lavant.console.doctor.server import http_address
from lavant.core.errors import AccessDenied, MissingComponent

TIMEOUT_S = 5.0
BYTES_MAX = 64 << 20
_LINE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Sample(msgspec.Struct, frozen=True):
    """All figures at one moment, by name and by the value of their label `queue`, if they have it."""

    time_s: float
    values: dict[tuple[str, str], float]

    def get(self, name: str, queue: str = "") -> float:
        return self.values.get((name, queue), 0.0)

    def queues(self) -> list[str]:
        return sorted({queue for name, queue in self.values if queue and name == "lavant_queue_visible"})


def parse(text: str, time_s: float) -> Sample:
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
    return Sample(time_s, values)


def rate(before: Sample, after: Sample, name: str, queue: str = "") -> float:
    """How much a counter grew in a second; 0 if it began anew."""
    span_s = after.time_s - before.time_s
    return max(0.0, after.get(name, queue) - before.get(name, queue)) / span_s if span_s > 0 else 0.0


def fetch(url: str, key: str | None, time_s: float) -> Sample:
    """Ask the server."""
    address = http_address(url)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        request = urllib.request.Request(f"{address}/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return parse(response.read(BYTES_MAX).decode(), time_s)
    except urllib.error.HTTPError as error:
        is_name = error.code == HTTPStatus.MISDIRECTED_REQUEST
        hint = "start the server with --public-host and that name" if is_name else "give a key with --key"
        raise AccessDenied(f"{address} does not show its figures ({error}); {hint}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise MissingComponent(f"no server answers at {address}: {reason}; start one with `lavant serve`") from None
