"""`GET /openapi.json`: the OpenAPI description of all routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any, TypeAlias

import msgspec

from lavant.broker.protocol.queue_attributes import QUEUE_ATTRIBUTES
from lavant.core.errors import SubscriptionMoved
from lavant.service.http.errors import PROBLEM, Failure
from lavant.service.http.operation import Operation, OperationOutcome, Parameter
from lavant.service.http.routes.operations import OPERATIONS

OPENAPI_VERSION = "3.1.0"
_REFERENCE = "#/components/schemas/{name}"

_TEXT_ROUTES = {
    "/openapi.json": ("This document", "Needs no key.", "application/json", {304: "the client has it already"}),
    "/backup": (
        "Back up: everything that was confirmed before the request, as a tar archive",
        "Needs the scope admin, and a key without a namespace.",
        "application/x-tar",
        {
            401: "no key, or an unknown one",
            403: "the key lacks the scope, or has a namespace",
            409: "the server keeps everything in memory only",
            429: "too many backups are being taken; see Retry-After",
            503: "the server starts or stops; see Retry-After",
        },
    ),
    "/metrics": (
        "Metrics, in the format OpenMetrics",
        "May need the metrics key, or have a port of its own.",
        "application/openmetrics-text",
        {401: "no key, or another one"},
    ),
    "/healthz": ("Whether the server works", "Needs no key.", "text/plain", {503: "it should be restarted"}),
    "/readyz": ("Whether the server takes requests", "Needs no key.", "text/plain", {503: "why not"}),
}
"""Routes for operators and their programs, whose answers are no objects: summary, key, content type and failures."""

SchemaOf: TypeAlias = Callable[[Any], dict[str, Any]]


def openapi(operations: tuple[Operation, ...] = OPERATIONS) -> dict[str, Any]:
    """The OpenAPI document."""
    schema_of, components = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, schema_of)
    paths |= {path: {"get": _text_route(path, *described)} for path, described in _TEXT_ROUTES.items()}
    return {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "Lavant",
            "version": version("lavant"),
            "description": "Publish, subscribe by content, and receive. Send an API key, if the server requires one, "
            "as `Authorization: Bearer KEY`. A member of a body that is null counts as left out.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


def _schemas(operations: tuple[Operation, ...]) -> tuple[SchemaOf, dict[str, Any]]:
    """Returns a function from types to schemas, and the components that these refer to."""
    kinds: list[Any] = [Failure]
    for operation in operations:
        for kind in (*(body.kind for body in operation.bodies), *(outcome.kind for outcome in operation.outcomes)):
            kinds += kind if isinstance(kind, tuple) else () if kind is None else (kind,)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    for attribute in QUEUE_ATTRIBUTES:
        settings = components["QueueSettings"]["properties"][attribute.name]
        settings["description"] = attribute.text
        if attribute.most is not None:
            settings |= {"minimum": attribute.least, "maximum": attribute.most}
    known = {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}

    def schema_of(kind: Any) -> dict[str, Any]:
        return {"anyOf": [known[id(each)] for each in kind]} if isinstance(kind, tuple) else known[id(kind)]

    return schema_of, components


def _described(operation: Operation, schema_of: SchemaOf) -> dict[str, Any]:
    needs = f"Needs the scope {operation.scope}." if operation.scope else "Any key will do."
    described: dict[str, Any] = {
        "summary": operation.summary,
        "description": needs,
        "operationId": _name_of(operation),
        "responses": {str(each.status): _outcome(each, schema_of) for each in operation.outcomes},
    }
    for outcome in _usual(operation):
        described["responses"].setdefault(str(outcome.status), _outcome(outcome, schema_of))
    if operation.parameters:
        described["parameters"] = [_parameter(each) for each in operation.parameters]
    if operation.bodies:
        described["requestBody"] = {
            "required": True,
            "content": {
                body.content_type: {"schema": schema_of(body.kind), "example": body.example}
                for body in operation.bodies
            },
        }
    return described


def _text_route(path: str, summary: str, needs: str, content_type: str, failures: dict[int, str]) -> dict[str, Any]:
    return {
        "summary": summary,
        "description": needs,
        "operationId": "get_" + path.strip("/").replace(".", "_"),
        "responses": {
            "200": {"description": "as asked", "content": {content_type: {}}},
            **{str(status): {"description": why} for status, why in failures.items()},
        },
    }


def _usual(operation: Operation) -> Iterator[OperationOutcome]:
    """The outcomes that operations have in common; one that declares the status itself says it better."""
    if operation.path.startswith("/subscriptions/{name}"):
        yield OperationOutcome(SubscriptionMoved.http_status, "it has moved to another broker: see `Location`")
    has_number = any(each.kind is int for each in operation.parameters)
    if operation.bodies or has_number:
        yield OperationOutcome(400, "an invalid parameter or body")
    yield OperationOutcome(401, "no key, or an unknown one")
    yield OperationOutcome(403, "the key lacks the scope, or belongs to another namespace")
    if operation.bodies:
        yield OperationOutcome(408, "the body arrived too slowly")
        yield OperationOutcome(413, "the body is too large")
    if operation.bodies or operation.method == "POST":
        yield OperationOutcome(415, "the content type is unknown; send a request without a body as JSON, too")
    yield OperationOutcome(429, "the namespace of this key sends too many requests; see Retry-After")
    yield OperationOutcome(503, "the server starts or stops, or its disk is full; see Retry-After")


def _name_of(operation: Operation) -> str:
    """
    >>> _name_of(OPERATIONS[0])
    'post_publish'
    """
    return operation.method.lower() + operation.path.replace("/", "_").replace("{", "").replace("}", "")


def _outcome(outcome: OperationOutcome, schema_of: SchemaOf) -> dict[str, Any]:
    if outcome.status >= 400 or outcome.status == SubscriptionMoved.http_status:
        return _failed(outcome.help, schema_of)
    if outcome.kind is None:
        return {"description": outcome.help}
    content = {"schema": schema_of(outcome.kind), "example": outcome.example}
    return {"description": outcome.help, "content": {"application/json": content}}


def _failed(help: str, schema_of: SchemaOf) -> dict[str, Any]:
    return {"description": help, "content": {PROBLEM: {"schema": schema_of(Failure)}}}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.where,
        "description": parameter.help,
        "required": parameter.is_required,
        "schema": {
            "type": "integer" if parameter.kind is int else "string",
            **({"enum": list(parameter.choices)} if parameter.choices else {}),
            **({} if parameter.least is None else {"minimum": parameter.least}),
            **({} if parameter.most is None else {"maximum": parameter.most}),
        },
    }
