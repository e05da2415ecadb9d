"""Checks of a server: readiness, clocks, memory."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from datetime import timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from lavant.cli.reports.doctor.findings import CheckVerdict, Finding

TIMEOUT_S = 3.0
CLOCK_S_MAX = 5.0
APART_S_MAX = 60.0
"""Difference between server time and its wall clock that is not worth a note."""

MEMORY_NOTED, MEMORY_FULL = 0.8, 0.99
"""Shares of the memory limit."""


def http_address(url: str) -> str:
    """The HTTP address for an address of any protocol: all share one port.

    >>> http_address("lavant://127.0.0.1:7324"), http_address("lavants://queues.example:99")
    ('http://127.0.0.1:7324', 'https://queues.example:99')
    """
    parts = urlsplit(url)
    scheme = "https" if parts.scheme in {"lavants", "https"} else "http"
    return f"{scheme}://{parts.netloc}"


def server(url: str) -> list[Finding]:
    """Whether the server is ready, the clocks agree, and memory is left."""
    address = http_address(url)
    name = f"server at {address}"
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=TIMEOUT_S) as response:
            said, date = response.read(1000).decode(errors="replace").strip(), response.headers.get("date")
    except urllib.error.HTTPError as error:
        said = error.read(1000).decode(errors="replace").strip()
        return [Finding(name, CheckVerdict.BAD, f"not ready: {said}", "look at its log")]
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return [Finding(name, CheckVerdict.NOTE, f"no answer: {reason}", "start one with `lavant serve`")]
    findings = [Finding(name, CheckVerdict.OK, said)]
    if date is not None:
        findings.append(_clock(parsedate_to_datetime(date).timestamp()))
    metrics = _metrics(address)
    return [*findings, *_memory(metrics), *_own_time(metrics)]


def _metrics(address: str) -> dict[str, float]:
    """Metrics without labels; empty if /metrics is not accessible."""
    try:
        with urllib.request.urlopen(f"{address}/metrics", timeout=TIMEOUT_S) as response:
            text = response.read().decode(errors="replace")
    except (OSError, ValueError):
        return {}
    return {name: float(value) for name, value in re.findall(r"^(lavant_\w+) (-?[0-9.e+-]+)$", text, re.MULTILINE)}


def _memory(metrics: dict[str, float]) -> list[Finding]:
    """Memory used, as a share of the limit."""
    held, limit = metrics.get("lavant_memory_bytes"), metrics.get("lavant_memory_limit_bytes")
    if held is None or not limit:
        return []
    said = f"{held / (1 << 20):,.0f} of {limit / (1 << 20):,.0f} MiB for messages, queues, jobs and subscriptions"
    if held < MEMORY_NOTED * limit:
        return [Finding("server's memory", CheckVerdict.OK, said)]
    remedy = "receive or delete messages, or start it with a larger --memory-max: new messages are refused"
    return [
        Finding("server's memory", CheckVerdict.BAD if held > MEMORY_FULL * limit else CheckVerdict.NOTE, said, remedy)
    ]


def _own_time(metrics: dict[str, float]) -> list[Finding]:
    """Whether the server's own time, by which leases and messages expire, agrees with its wall clock."""
    ahead_s = metrics.get("lavant_clock_ahead_seconds")
    if ahead_s is None:
        return []
    if abs(ahead_s) <= APART_S_MAX:
        return [Finding("server's time", CheckVerdict.OK, "agrees with its clock")]
    said = f"{timedelta(seconds=round(abs(ahead_s)))} {'ahead of' if ahead_s > 0 else 'behind'} its clock"
    remedy = "set the clock right" if ahead_s > 0 else "if its clock is right, start it with --clock-jump accept"
    return [Finding("server's time", CheckVerdict.NOTE, said, remedy)]


def _clock(server_s: float) -> Finding:
    apart_s = abs(time.time() - server_s)
    if apart_s > CLOCK_S_MAX:
        said = f"the server's is {apart_s:.0f} s apart from this machine's"
        return Finding("clocks", CheckVerdict.NOTE, said, "signatures of SQS clients may be refused; synchronise them")
    return Finding("clocks", CheckVerdict.OK, "the server's and this machine's agree")
