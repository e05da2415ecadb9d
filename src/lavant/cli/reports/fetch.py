"""Fetches a JSON view of a server over HTTP, which shares the port."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from lavant.cli.reports.doctor import http_address
from lavant.core.errors import InvalidValue, MissingComponent

TIMEOUT_S = 30.0


def fetch(url: str, path: str, key: str, ca_file: Path | None) -> bytes:
    """The body of a GET; the server's reason is the error's."""
    address = http_address(url)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    context = ssl.create_default_context(cafile=ca_file) if address.startswith("https") else None
    try:
        request = urllib.request.Request(f"{address}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as response:
            body: bytes = response.read()
            return body
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
