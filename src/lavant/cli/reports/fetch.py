"""Asks a server over HTTP, which shares the port."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from lavant.cli.reports.doctor import http_address
from lavant.core.errors import InvalidValue, MissingComponent

TIMEOUT_S = 30.0


def fetch(
    url: str,
    path: str,
    key: str,
    ca_file: Path | None,
    *,
    method: str = "GET",
    body: bytes | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """The body of the answer; the server's reason is the error's. What is sent is JSON."""
    address = http_address(url)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if body is not None:
        headers["content-type"] = "application/json"
    context = ssl.create_default_context(cafile=ca_file) if address.startswith("https") else None
    try:
        request = urllib.request.Request(f"{address}{path}", body, headers, method=method)
        with urllib.request.urlopen(request, timeout=timeout_s, context=context) as response:
            answer: bytes = response.read()
            return answer
    except urllib.error.HTTPError as error:
        raise InvalidValue(_reason(error.read())) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise MissingComponent(f"no server answers at {address}: {reason}; start one with `lavant serve`") from None


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["reason"])
    except (ValueError, KeyError, TypeError):
        return f"the server answers: {body[:200].decode(errors='replace')}"
