"""The HTTP interface as the author of a client meets it: whatever a request gets, `/openapi.json` describes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator
from tests.integration.serving import Served
from tests.integration.talking_http import Answered, Talker

from lavant.service.http.bodies import JSON
from lavant.service.http.errors import PROBLEM
from lavant.service.http.openapi import openapi
from lavant.service.http.operation import EVENTS, STREAM, Operation
from lavant.service.http.routes.operations import OPERATIONS

DOCUMENT = openapi()
NAMES = {"name": "nothing-has-this-name", "number": "999999"}
MADE = [(room, NAMES["name"]) for room in ("queues", "schedules")]
TOO_LARGE = 17 << 20


class Attempt(NamedTuple):
    """A request, right or wrong."""

    path: str
    body: bytes | None = None
    kind: str = ""
    header: tuple[str, str] = ("Accept", "*/*")


def attempts(operation: Operation) -> Iterator[Attempt]:
    """As its examples say, and with each mistake that can be made."""
    path = re.sub(r"\{(\w+)\}", lambda found: NAMES[found[1]], operation.path)
    examples = [Attempt(path, _encoded(each.example), each.content_type) for each in operation.bodies]
    plain = examples[0] if examples else Attempt(path)
    yield from examples if examples else [Attempt(path)]
    for parameter in operation.parameters:
        if parameter.where == "query":
            yield plain._replace(path=f"{path}?{parameter.name}=-7")
        if parameter.name == "If-Match":
            yield plain._replace(header=("If-Match", '"other"'))
    if operation.method == "POST" and not operation.bodies:
        yield Attempt(path, b"", JSON)
    if operation.bodies:
        yield Attempt(path, b"{", JSON)
        yield Attempt(path, b'{"no_such_member": [1]}', JSON)
        yield Attempt(path, b"[7]", JSON)
        yield Attempt(path, b"a=1", "text/plain")
        yield Attempt(path, b"", JSON, ("Content-Length", str(TOO_LARGE)))


def _encoded(example: Any) -> bytes:
    return example.encode() if isinstance(example, str) else json.dumps(example).encode()


def described(operation: Operation, answered: Answered) -> None:
    """Fails unless the document has the status, and the body is what it says there."""
    responses = DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"]
    assert str(answered.status) in responses, answered
    contents = responses[str(answered.status)].get("content", {})
    if answered.status >= 400:
        assert answered.headers["content-type"] == PROBLEM
    if contents:
        schema: dict[str, Any] = contents[answered.headers["content-type"].partition(";")[0]]["schema"]
        Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(answered.json)
    else:
        assert answered.body == b""


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.way not in (EVENTS, STREAM)],
    ids=lambda each: f"{each.method} {each.path}",
)
def test_every_answer_is_described(brisk: Served, operation: Operation) -> None:
    for path, body, kind, (name, value) in attempts(operation):
        with Talker(brisk) as talker:
            described(operation, talker.ask(operation.method, path, body, kind=kind, **{name: value}))
    with Talker(brisk) as talker:  # removes what the examples have made
        for room, name in (("subscriptions", "dear"), ("advertisements", "quotes"), *MADE):
            talker.ask("DELETE", f"/{room}/{name}")
