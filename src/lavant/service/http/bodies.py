"""Reads bodies of requests, bounded in size and of a declared content type. The connection bounds their time.

A body must be declared as JSON, and so must a POST without a body. Browsers let any page send forms, plain text and
empty requests to any server, but ask the server (CORS) before they send JSON from another origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from lavant.core.errors import UNDECODABLE
from lavant.core.validation.choices import with_choices
from lavant.service.http.errors import ApiError, bad_request
from lavant.service.runtime.limits import ServiceLimits


def integer(query: Mapping[str, str], name: str, *, default: int, lowest: int, highest: int) -> int:
    """
    >>> integer({"limit": "5"}, "limit", default=100, lowest=1, highest=1000)
    5
    """
    text = query.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = lowest - 1
    if not lowest <= value <= highest:
        raise bad_request(f"{name} must be an integer between {lowest} and {highest}, got {text[:40]!r}")
    return value


def page_end(names: Sequence[str], limit: int) -> str | None:
    """The start of the next page; None if this one was not full."""
    return names[-1] if len(names) == limit else None


JSON = "application/json"

_T = TypeVar("_T")
_CLOSE = {"Connection": "close"}  # the rest of the body is not read


def content_type(request: Request) -> str:
    """The content type without parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(request: Request, limits: ServiceLimits) -> bytes:
    """Reads a body. One whose Content-Length is too large is not read; others only up to the limit."""
    length = request.headers.get("content-length", "0")
    if length.isdigit() and (len(length) > 18 or int(length) > limits.body_bytes_max):
        raise _too_large(limits)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limits.body_bytes_max:
            raise _too_large(limits)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def read_json(request: Request, limits: ServiceLimits, kind: type[_T]) -> _T:
    """Decodes a JSON body as a value of `kind`. An empty body is an empty object."""
    check_json(content_type(request))
    body = await read_body(request, limits)
    decoded: _T = decode(body or b"{}", kind)
    return decoded


def check_json(given: str) -> None:
    if given != JSON:
        raise ApiError(
            415,
            "UnsupportedMediaType",
            f"the request must have content type {JSON}, got {given or 'none'!r}; use curl's option --json",
        )


def decode(body: bytes, kind: Any) -> Any:
    """A member that is null counts as left out, unless null is a value of its own there."""
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as error:
        try:
            return msgspec.convert(_without_nulls(msgspec.json.decode(body)), kind, str_keys=True)
        except (*UNDECODABLE, msgspec.ValidationError):
            raise bad_request(f"the body is invalid: {with_choices(error, kind)}; /openapi.json describes it") from None


_NULL_IS_A_VALUE = frozenset({"input"})


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if each is not None or name in _NULL_IS_A_VALUE}
        return {name: each if name in _NULL_IS_A_VALUE else _without_nulls(each) for name, each in kept.items()}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _too_large(limits: ServiceLimits) -> ApiError:
    return ApiError(
        413,
        "LimitExceeded",
        f"the body has more than {limits.body_bytes_max} bytes, which is the limit; send fewer or smaller publications",
        headers=_CLOSE,
    )
