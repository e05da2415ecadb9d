"""Asks a server over HTTP, which shares the port."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

from lavant.client.connection.settings import check_key, nobody_answers, tls_context
from lavant.core import addresses
from lavant.core.errors import (
    AccessDenied,
    Conflict,
    Internal,
    InvalidValue,
    LavantError,
    Missing,
    OverLimit,
    Unavailable,
    error_class,
)

TIMEOUT_S = 30.0
_PORTS = {"http": 80, "https": 443}
_KINDS: dict[int, type[LavantError]] = {
    HTTPStatus.UNAUTHORIZED: AccessDenied,
    HTTPStatus.FORBIDDEN: AccessDenied,
    HTTPStatus.NOT_FOUND: Missing,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.TOO_MANY_REQUESTS: OverLimit,
    HTTPStatus.SERVICE_UNAVAILABLE: Unavailable,
}


def http_address(url: str) -> str:
    """The HTTP address for an address of any protocol: all share one port.

    >>> http_address("lavant://127.0.0.1"), http_address("lavants://queues.example:99"), http_address("http://proxy/")
    ('http://127.0.0.1:7324', 'https://queues.example:99', 'http://proxy')
    """
    if url.startswith(("http://", "https://")):
        return url.rstrip("/")
    return addresses.http_address(str(addresses.Address.parse(url)))


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
    with opened(url, path, key, ca_file, method=method, body=body, timeout_s=timeout_s) as response:
        answer: bytes = response.read()
        return answer


@contextmanager
def opened(
    url: str,
    path: str,
    key: str,
    ca_file: Path | None,
    *,
    method: str = "GET",
    body: bytes | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Iterator[HTTPResponse]:
    """The answer, to be read in parts; otherwise like `fetch`."""
    address = http_address(url)
    check_key(key)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if body is not None:
        headers["content-type"] = "application/json"
    context = tls_context(address, ca_file, is_secure=address.startswith("https:"))
    try:
        request = urllib.request.Request(f"{address}{path}", body, headers, method=method)
        with urllib.request.urlopen(request, timeout=timeout_s, context=context) as response:
            yield response
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(error.code, error.read()) from None
    except (OSError, ValueError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise nobody_answers(address, _port(address), reason) from None


def _port(address: str) -> int:
    try:
        parts = urlsplit(address)
        return _PORTS[parts.scheme] if parts.port is None else parts.port
    except ValueError as error:
        raise InvalidValue(f"{address} is no address: {error}") from None


def _refusal(status: int, body: bytes) -> LavantError:
    """The error that the server names; otherwise one of the kind that the status says."""
    kind = _KINDS.get(status, Internal if status >= HTTPStatus.INTERNAL_SERVER_ERROR else InvalidValue)
    try:
        said = json.loads(body)["error"]
        named = error_class(said["code"])
        return (kind if named is LavantError else named)(str(said["reason"]))
    except (ValueError, KeyError, TypeError):
        return kind(f"the server answers: {body[:200].decode(errors='replace')}")
