"""Whether the server answers, and is well."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from lavant.console.doctor.findings import Finding, Verdict

TIMEOUT_S = 3.0
CLOCK_S_MAX = 5.0


def http_address(url: str) -> str:
    """Where HTTP answers, for the address of any protocol: all share one port.

    >>> http_address("lavant://127.0.0.1:7324"), http_address("lavants://queues.example:99")
    ('http://127.0.0.1:7324', 'https://queues.example:99')
    """
    parts = urlsplit(url)
    scheme = "https" if parts.scheme in {"lavants", "https"} else "http"
    return f"{scheme}://{parts.netloc}"


def server(url: str) -> list[Finding]:
    """Health, and whether both clocks agree."""
    address = http_address(url)
    name = f"server at {address}"
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=TIMEOUT_S) as response:
            said, date = response.read(1000).decode(errors="replace").strip(), response.headers.get("date")
    except urllib.error.HTTPError as error:
        said = error.read(1000).decode(errors="replace").strip()
        return [Finding(name, Verdict.BAD, f"it is not well: {said}", "look at its log")]
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return [Finding(name, Verdict.NOTE, f"no answer: {reason}", "start one with `lavant serve`")]
    findings = [Finding(name, Verdict.OK, said)]
    if date is not None:
        findings.append(_clock(parsedate_to_datetime(date).timestamp()))
    return findings


def _clock(server_s: float) -> Finding:
    apart_s = abs(time.time() - server_s)
    if apart_s > CLOCK_S_MAX:
        said = f"the server's is {apart_s:.0f} s apart from this machine's"
        return Finding("clocks", Verdict.NOTE, said, "signatures of SQS clients may be refused; synchronise them")
    return Finding("clocks", Verdict.OK, "the server's and this machine's agree")
