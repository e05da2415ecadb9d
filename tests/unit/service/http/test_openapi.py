"""The description of the HTTP interface: valid, whole, and its examples are what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from lavant.broker.protocol.queue_attributes import QUEUE_ATTRIBUTES, QueueAttribute
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.service.http.openapi import openapi
from lavant.service.http.operation import Operation
from lavant.service.http.routes.operations import OPERATIONS
from lavant.service.http.schemas import QueueSettings
from lavant.service.net.http_dispatch import OPERATIONS_PATHS

DOCUMENT = openapi()


def examples() -> list[Any]:
    found = []
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            places = {"request": operation.get("requestBody", {}), **operation["responses"]}
            for place, described in places.items():
                for kind, content in described.get("content", {}).items():
                    if "example" in content:
                        found.append(pytest.param(content, id=f"{method} {path} {place} {kind}"))
    return found


def test_the_document_is_valid() -> None:
    validate(DOCUMENT)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: f"{operation.method} {operation.path}")
def test_every_operation_is_in_it_with_its_parameters(operation: Operation) -> None:
    described = DOCUMENT["paths"][operation.path][operation.method.lower()]
    named = {each["name"] for each in described.get("parameters", ()) if each["in"] == "path"}
    assert named == {part[1:-1] for part in operation.path.split("/") if part.startswith("{")}
    assert (operation.handler is None) != (operation.way == "")


def test_names_of_operations_are_unique() -> None:
    names = [each["operationId"] for operations in DOCUMENT["paths"].values() for each in operations.values()]
    assert len(names) == len(set(names)) == len(OPERATIONS) + len(OPERATIONS_PATHS) + len({"/openapi.json", "/backup"})


@pytest.mark.parametrize("content", examples())
def test_every_example_is_what_its_description_says(content: dict[str, Any]) -> None:
    schema = {**content["schema"], "components": DOCUMENT["components"]}
    Draft202012Validator(schema).validate(content["example"])


def test_there_are_examples_of_all_bodies_and_answers() -> None:
    wanted = sum(len(each.bodies) + sum(outcome.kind is not None for outcome in each.outcomes) for each in OPERATIONS)
    assert len(examples()) == wanted > 10


def test_settings_of_a_queue_have_the_queues_own_names_and_defaults() -> None:
    assert QueueSettings().config() == QueueConfig()


@pytest.mark.parametrize("attribute", QUEUE_ATTRIBUTES, ids=lambda each: each.name)
def test_settings_of_a_queue_have_the_declared_text_and_range(attribute: QueueAttribute) -> None:
    described = DOCUMENT["components"]["schemas"]["QueueSettings"]["properties"][attribute.name]
    assert described["description"] == attribute.text
    bounds = (None, None) if attribute.most is None else (attribute.least, attribute.most)
    assert (described.get("minimum"), described.get("maximum")) == bounds


def test_the_page_names_every_route() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "http.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(GET|PUT|PATCH|POST|DELETE) (/[\w/.]*)[?`]", page))
    named |= {("GET", path) for path in re.findall(r"`(/(?:metrics|healthz|readyz))`", page)}
    described = {
        (method.upper(), re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), path))
        for path, operations in DOCUMENT["paths"].items()
        for method in operations
    }
    assert sorted(described - named) == []
    assert sorted(named - described) == []
