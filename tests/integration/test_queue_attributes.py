"""Every queue attribute through every front-end: Python, HTTP, SQS (boto3) and the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import boto3
import pytest
from botocore.exceptions import ClientError
from msgspec.structs import asdict
from tests.integration.serving import Served
from tests.integration.talking_http import Talker
from typer.testing import CliRunner

import lavant
from lavant import connect
from lavant.broker.protocol.queue_attributes import QUEUE_ATTRIBUTES, QueueAttribute
from lavant.broker.protocol.queue_config import QueueConfig
from lavant.cli import commands
from lavant.client.values.mirror import to_protocol
from lavant.core.errors import InvalidValue, LavantError, LimitExceeded
from lavant.core.seconds import seconds_name

ARN = "arn:aws:sqs:us-east-1:000000000000:"
BY_NAME = {each.name: each for each in QUEUE_ATTRIBUTES}
NUMBERS = [each.name for each in QUEUE_ATTRIBUTES if each.most is not None]
SAMPLES: dict[str, list[Any]] = {
    "order": ["out-of-order", "in-order"],
    "dead_letters": ["dead"],
    "deduplicate_by_content": [False, True],
    "deduplicate_within_group": [False, True],
    "labels": [{"team": "tea"}],
}
"""Attributes that are no numbers; of a number, the least and the largest are taken."""


class Refusal(NamedTuple):
    name: str
    """Of the attribute, as the front-end calls it."""
    unit: int
    reason: str


class Python:
    """Its times are in seconds."""

    def __init__(self, served: Served) -> None:
        self.client = connect(served.url)
        self.close = self.client.close

    def create(self, queue: str, settings: dict[str, Any]) -> None:
        given = {seconds_name(name): self.in_seconds(name, value) for name, value in settings.items()}
        self.client.create_queue(queue, lavant.QueueConfig(**given))

    def show(self, queue: str) -> dict[str, Any]:
        return asdict(to_protocol(self.client.queue(queue).describe().config))

    def refusal(self, settings: dict[str, Any], attribute: QueueAttribute) -> Refusal:
        with pytest.raises((InvalidValue, LimitExceeded)) as caught:
            self.create(new_name(settings), settings)
        return Refusal(seconds_name(attribute.name), attribute.sqs_unit, str(caught.value))

    @staticmethod
    def in_seconds(name: str, value: Any) -> Any:
        return value / 1000 if name.endswith("_ms") else value


class Http:
    """A subscription creates its queue, or uses one that exists."""

    def __init__(self, served: Served) -> None:
        self.talker = Talker(served)
        self.close = self.talker.close

    def create(self, queue: str, settings: dict[str, Any]) -> None:
        assert self._subscribe(queue, settings).status == 201

    def show(self, queue: str) -> dict[str, Any]:
        self._subscribe(queue, {})
        settings = self.talker.ask("GET", f"/subscriptions/{queue}").json["settings"]
        assert isinstance(settings, dict)
        return settings

    def refusal(self, settings: dict[str, Any], attribute: QueueAttribute) -> Refusal:
        answer = self._subscribe(new_name(settings), settings)
        assert (answer.status, answer.code) in {(400, "InvalidValue"), (400, "LimitExceeded")}
        return Refusal(attribute.name, 1, answer.json["error"]["reason"])

    def _subscribe(self, queue: str, settings: dict[str, Any]) -> Any:
        body = {"filter": "n = 1", "name": queue, "queue": queue, "settings": settings}
        return self.talker.ask("POST", "/subscriptions", body)


class Sqs:
    def __init__(self, served: Served) -> None:
        endpoint = f"http://{served.host}:{served.port}"
        access = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
        self.sqs = boto3.client("sqs", endpoint_url=endpoint, region_name="us-east-1", **access)
        self.close = self.sqs.close

    def create(self, queue: str, settings: dict[str, Any]) -> None:
        self.sqs.create_queue(QueueName=queue, Attributes=self.attributes(settings))

    def show(self, queue: str) -> dict[str, Any]:
        every = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
        names = sorted({each.sqs_name for each in QUEUE_ATTRIBUTES})
        named = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        assert named == {name: every[name] for name in names if name in every}
        return {each.name: self._value(each, every) for each in QUEUE_ATTRIBUTES}

    def refusal(self, settings: dict[str, Any], attribute: QueueAttribute) -> Refusal:
        with pytest.raises(ClientError) as caught:
            self.create(new_name(settings), settings)
        error = caught.value.response["Error"]
        assert error["Code"] in {"InvalidAttributeValue", "InvalidParameterValue"}
        name = "maxReceiveCount" if attribute.name == "receives_max" else attribute.sqs_name
        return Refusal(name, attribute.sqs_unit, error["Message"])

    def attributes(self, settings: dict[str, Any]) -> dict[str, str]:
        attributes = {}
        for name, value in settings.items():
            each = BY_NAME[name]
            if each.type is bool:
                attributes[each.sqs_name] = each.sqs_values[value]
            elif each.most is not None:
                attributes[each.sqs_name] = str(value // each.sqs_unit)
            elif each.type is dict:
                attributes[each.sqs_name] = json.dumps(value)
            elif value == "in-order":
                attributes[each.sqs_name] = "true"
        if "dead_letters" in settings:
            policy = {
                "deadLetterTargetArn": ARN + settings["dead_letters"],
                "maxReceiveCount": settings["receives_max"],
            }
            attributes["RedrivePolicy"] = json.dumps(policy)
        return attributes

    def _value(self, each: QueueAttribute, attributes: dict[str, str]) -> Any:
        if each.name == "order":
            return "in-order" if each.sqs_name in attributes else "out-of-order"
        if each.sqs_name not in attributes:
            return each.default
        text = attributes[each.sqs_name]
        if each.sqs_name == "RedrivePolicy":
            policy = json.loads(text)
            arn = policy["deadLetterTargetArn"]
            return arn.removeprefix(ARN) if each.name == "dead_letters" else policy["maxReceiveCount"]
        if each.type is bool:
            return bool(each.sqs_values.index(text))
        return json.loads(text) if each.type is dict else int(text) * each.sqs_unit


class CommandLine:
    def __init__(self, served: Served) -> None:
        self.url = served.url

    def close(self) -> None:
        """Each command has closed its connection."""

    def create(self, queue: str, settings: dict[str, Any]) -> None:
        self.run("create", queue, *self.options(settings))

    def set(self, queue: str, settings: dict[str, Any]) -> None:
        self.run("configure", queue, *self.options(settings))

    def show(self, queue: str) -> dict[str, Any]:
        settings = json.loads(self.run("info", queue, "--json"))["settings"]
        assert isinstance(settings, dict)
        return settings

    def refusal(self, settings: dict[str, Any], attribute: QueueAttribute) -> Refusal:
        with pytest.raises(InvalidValue) as caught:
            self.create(new_name(settings), settings)
        return Refusal(attribute.name, 1, str(caught.value))

    def run(self, *arguments: str) -> str:
        result = CliRunner().invoke(commands, ["queue", *arguments], env={"LAVANT_URL": self.url})
        if isinstance(result.exception, LavantError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return str(result.stdout)

    def options(self, settings: dict[str, Any]) -> list[str]:
        options = []
        for name, value in settings.items():
            flag = BY_NAME[name].flag
            if name == "order":
                options += [flag] if value == "in-order" else []
            elif value is True:
                options += [flag]
            elif isinstance(value, dict):
                options += [part for key, text in value.items() for part in (flag, f"{key}={text}")]
            elif value is not False:
                options += [flag, str(value)]
        return options


FrontEnd = Python | Http | Sqs | CommandLine
KINDS = (Python, Http, Sqs, CommandLine)


@pytest.fixture(scope="module")
def front_ends() -> Iterator[dict[type, FrontEnd]]:
    with Served(None) as served:
        with connect(served.url) as client:
            client.create_queue("dead")
        opened: dict[type, FrontEnd] = {kind: kind(served) for kind in KINDS}
        yield opened
        for each in opened.values():
            each.close()


def new_name(settings: dict[str, Any]) -> str:
    """As SQS wants it."""
    return f"q-{uuid4().hex}" + (".fifo" if settings.get("order") == "in-order" else "")


def samples(name: str) -> list[Any]:
    attribute = BY_NAME[name]
    return [attribute.least, attribute.most] if attribute.most is not None else SAMPLES[name]


def with_companions(name: str, value: Any) -> dict[str, Any]:
    """The attribute, and those without which it cannot be set."""
    if BY_NAME[name].is_in_order_only:
        return {"order": "in-order", name: value}
    if name in ("dead_letters", "receives_max"):
        return {"dead_letters": "dead", "receives_max": 3, name: value}
    return {name: value}


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("kind", KINDS)
def test_what_one_front_end_sets_all_show(front_ends: dict[type, FrontEnd], kind: type, name: str) -> None:
    for value in samples(name):
        settings = with_companions(name, value)
        queue = new_name(settings)
        front_ends[kind].create(queue, settings)
        expected = asdict(QueueConfig(**settings))
        for each in front_ends.values():
            assert each.show(queue) == expected, type(each).__name__


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_outside_is_refused_with_name_value_and_range(
    front_ends: dict[type, FrontEnd], kind: type, name: str
) -> None:
    attribute = BY_NAME[name]
    assert attribute.most is not None
    step = attribute.sqs_unit
    for value in (attribute.least - step, attribute.most + step):
        called, unit, reason = front_ends[kind].refusal(with_companions(name, value), attribute)
        for part in (called, value // unit, attribute.least // unit, attribute.most // unit):
            assert str(part) in reason


@pytest.mark.parametrize("name", [each.name for each in QUEUE_ATTRIBUTES if not each.is_fixed])
def test_a_queue_can_be_set_anew_on_the_command_line_and_over_sqs(front_ends: dict[type, FrontEnd], name: str) -> None:
    line, sqs = front_ends[CommandLine], front_ends[Sqs]
    assert isinstance(line, CommandLine)
    assert isinstance(sqs, Sqs)
    settings = with_companions(name, samples(name)[-1])
    fixed = {name: value for name, value in settings.items() if name == "order"}
    others = {name: value for name, value in settings.items() if name != "order"}
    for front_end in (line, sqs):
        queue = new_name(settings)
        front_end.create(queue, fixed)
        if front_end is line:
            line.set(queue, others)
        else:
            sqs.sqs.set_queue_attributes(QueueUrl=queue, Attributes=sqs.attributes(others))
        assert line.show(queue) == asdict(QueueConfig(**settings))


def test_the_command_line_removes_what_it_has_set(front_ends: dict[type, FrontEnd]) -> None:
    line = front_ends[CommandLine]
    assert isinstance(line, CommandLine)
    line.create("full", {"dead_letters": "dead", "receives_max": 3, "labels": {"team": "tea", "floor": "2"}})
    line.run("configure", "full", "--dead-letters", "", "--label", "team=")
    assert line.show("full") == asdict(QueueConfig(labels={"floor": "2"}))
    line.create("turns.fifo", {"order": "in-order", "deduplicate_by_content": True})
    line.run("configure", "turns.fifo", "--no-deduplicate-by-content")
    assert line.show("turns.fifo") == asdict(QueueConfig(order="in-order"))


def test_a_queue_that_exists_with_another_extension_attribute_is_not_created_again(
    front_ends: dict[type, FrontEnd],
) -> None:
    sqs = front_ends[Sqs]
    assert isinstance(sqs, Sqs)
    sqs.create("again", {"in_flight_max": 5})
    sqs.create("again", {"in_flight_max": 5})
    with pytest.raises(ClientError, match=r"different value for attribute Lavant\.InFlightMax"):
        sqs.create("again", {"in_flight_max": 6})


@pytest.mark.parametrize("name", ["Lavant.Depth", "InFlightMax", "lavant.InFlightMax", "Lavant."])
def test_a_name_that_is_not_declared_is_unknown_to_sqs(front_ends: dict[type, FrontEnd], name: str) -> None:
    sqs = front_ends[Sqs]
    assert isinstance(sqs, Sqs)
    with pytest.raises(sqs.sqs.exceptions.InvalidAttributeName):
        sqs.sqs.create_queue(QueueName="never", Attributes={name: "1"})
    with pytest.raises(sqs.sqs.exceptions.InvalidAttributeName):
        sqs.sqs.get_queue_attributes(QueueUrl="dead", AttributeNames=[name])
