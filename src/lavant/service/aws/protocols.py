"""The JSON and query protocols: they decode actions and requests, and encode results and errors.

JSON     POST /  X-Amz-Target: AmazonSQS.SendMessage        JSON in, JSON out
query    POST / or a queue's URL, a form                    a form in, XML out
         POST / or a queue's URL, ?Action=…                 the same (presigned URLs, mostly)

GET has no effect, because any link or image of a web page could trigger it. A body needs a content type.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from lavant.core.errors import UNDECODABLE
from lavant.service.aws import query_codec
from lavant.service.aws.http import HttpRequest
from lavant.service.aws.query_codec import action_of, decode_form, parse_form
from lavant.service.aws.sqs.actions import ACTIONS, Action
from lavant.service.aws.sqs.errors import SqsError
from lavant.service.aws.text import decoding_error

_TARGET_PREFIX = "AmazonSQS."
_AMZ_JSON = b"application/x-amz-json-1."
_FORM = b"application/x-www-form-urlencoded"
_encode_json = msgspec.json.Encoder().encode


class WireProtocol(Protocol):
    content_type: tuple[bytes, bytes]

    def decode(self, http: HttpRequest) -> tuple[Action, Any]: ...

    def encode_result(self, action: Action, result: msgspec.Struct | None, request_id: str) -> bytes: ...

    def encode_error(self, error: SqsError, request_id: str) -> bytes: ...


class JsonProtocol:
    content_type = (b"content-type", b"application/x-amz-json-1.0")

    def decode(self, http: HttpRequest) -> tuple[Action, Any]:
        if http.method != "POST":
            raise _wrong_method(http.method, "POST")
        _check_kind(http, _AMZ_JSON, is_needed=True)
        target = http.headers.get(b"x-amz-target", b"").decode("latin-1")
        if not target:
            raise SqsError("MissingAction", "The request must have a header X-Amz-Target that names the action.")
        action = ACTIONS.get(target.removeprefix(_TARGET_PREFIX)) if target.startswith(_TARGET_PREFIX) else None
        if action is None:
            raise SqsError("InvalidAction", f"The action {target[:100]} is not valid for this endpoint.")
        try:
            return action, action.decode_json(http.body)
        except UNDECODABLE as error:
            raise decoding_error(error) from None

    def encode_result(self, action: Action, result: msgspec.Struct | None, request_id: str) -> bytes:
        return b"" if result is None else _encode_json(result)

    def encode_error(self, error: SqsError, request_id: str) -> bytes:
        return _encode_json({"__type": error.fault.type, "message": error.message})


class QueryProtocol:
    content_type = (b"content-type", b"text/xml")

    def decode(self, http: HttpRequest) -> tuple[Action, Any]:
        if http.method != "POST":
            raise _wrong_method(http.method, "POST, for presigned URLs too")
        _check_kind(http, _FORM, is_needed=bool(http.body))
        form = parse_form(http.query)
        if http.body:
            form |= parse_form(http.body)
        action = action_of(form)
        return action, decode_form(action, form, http.path)

    def encode_result(self, action: Action, result: msgspec.Struct | None, request_id: str) -> bytes:
        return query_codec.encode_result(action.name, result, request_id)

    def encode_error(self, error: SqsError, request_id: str) -> bytes:
        return query_codec.encode_error(error, request_id)


JSON: WireProtocol = JsonProtocol()
QUERY: WireProtocol = QueryProtocol()


def protocol_of(headers: dict[bytes, bytes]) -> WireProtocol:
    if b"x-amz-target" in headers or headers.get(b"content-type", b"").startswith(b"application/x-amz-json"):
        return JSON
    return QUERY


def _check_kind(http: HttpRequest, beginning: bytes, *, is_needed: bool) -> None:
    kind = http.headers.get(b"content-type", b"")
    if not kind.lower().startswith(beginning) and (kind or is_needed):
        given = f"the content type {kind[:80].decode('latin-1')}" if kind else "no content type"
        wanted = f"{_AMZ_JSON.decode()}0 or {_FORM.decode()}"
        raise SqsError("UnsupportedMediaType", f"The request has {given}; use {wanted}.")


def _wrong_method(method: str, allowed: str) -> SqsError:
    return SqsError("MethodNotAllowed", f"The method {method[:20]} is not allowed here; use {allowed}.")
