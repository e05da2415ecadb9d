"""The registry: a request without a complete declaration cannot exist."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from tests.unit.broker.protocol.protocol_reference import PAGE, page_with, tables

from lavant.broker.machine.effects import composed
from lavant.broker.machine.machine import BrokerMachine
from lavant.broker.machine.state import BrokerState
from lavant.broker.protocol import namespaces, queues
from lavant.broker.protocol.commands import Answer, CommandFor, QueryFor, RequestFor, Value
from lavant.broker.protocol.registry import (
    ADMIN,
    ADMINISTRATION,
    ANSWERS,
    COMMANDS,
    DATA,
    DECLARATIONS,
    INGEST,
    PUBLISH,
    QUERIES,
    QUEUES,
    REGISTRY,
    SERVER,
    Declaration,
    declared,
    handlers_of,
    steps_of,
)
from lavant.broker.protocol.subscriptions import Publish

SEND = REGISTRY[queues.Send]
PEEK = REGISTRY[queues.Peek]


class Untagged(CommandFor[queues.Done], frozen=True):
    """Has no tag."""


class Unspoken(CommandFor[queues.Done], tag="unspoken", frozen=True):
    pass


class Neither(RequestFor[queues.Done], tag="neither", frozen=True):
    """Is neither a command nor a query."""


class NewAnswer(Answer, tag="new-answer", frozen=True):
    """Nothing says how it loses its namespace."""


class Unanswered(CommandFor[NewAnswer], tag="unanswered", frozen=True):
    """Its answer is not in the table."""


class Bare(CommandFor, tag="bare", frozen=True):  # type: ignore[type-arg]
    """Does not say what its answer is."""


class Foreign(Value, tag="foreign", frozen=True):
    """Is no request."""


def changed(declaration: Declaration, **fields: Any) -> Declaration:
    """A declaration with other fields, checked like a new one."""
    return Declaration(**{name: getattr(declaration, name) for name in declaration.__struct_fields__} | fields)


def test_a_whole_declaration_is_accepted() -> None:
    assert changed(SEND) == SEND
    assert changed(PEEK) == PEEK


@pytest.mark.parametrize("declaration", [SEND, PEEK], ids=["command", "query"])
@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"request": Neither}, "CommandFor or QueryFor"),
        ({"request": Foreign}, "CommandFor or QueryFor"),
        ({"request": None}, "CommandFor or QueryFor"),
        ({"request": Untagged}, "tag"),
        ({"request": Unspoken}, "docstring"),
        ({"request": Unanswered}, "ANSWERS"),
        ({"request": Bare}, "ANSWERS"),
        ({"scope": "everybody"}, "scope 'everybody'"),
        ({"scope": None}, "scope None"),
        ({"scope": SERVER}, "no_client_rule"),
        ({"rule": None}, "namespace rule"),
        ({"rule": namespaces.no_client_rule}, "no_client_rule"),
        ({"machine": "printer"}, "machine 'printer'"),
        ({"machine": ""}, "machine ''"),
        ({"step": ""}, "step"),
        ({"step": None}, "step"),
        ({"is_data": None}, "DATA or ADMINISTRATION"),
    ],
)
def test_each_field_of_a_declaration_is_needed(declaration: Declaration, fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(TypeError, match=fault):
        changed(declaration, **fields)


def test_no_field_has_a_default() -> None:
    whole = [getattr(SEND, name) for name in SEND.__struct_fields__]
    for count in range(len(whole)):
        with pytest.raises(TypeError, match="argument"):
            Declaration(*whole[:count])


def test_the_step_of_queries_is_for_queries() -> None:
    with pytest.raises(TypeError, match="that of queries"):
        changed(SEND, step="query")
    with pytest.raises(TypeError, match="that of queries"):
        changed(PEEK, step="send")


def test_every_request_is_declared_once() -> None:
    with pytest.raises(TypeError, match="Send is declared twice"):
        declared([*DECLARATIONS, changed(SEND, scope=ADMIN)], REGISTRY)
    without = [each for each in DECLARATIONS if each is not SEND]
    with pytest.raises(TypeError, match="add to DECLARATIONS: Send"):
        declared(without, REGISTRY)


def test_an_undeclared_request_in_the_protocol_cannot_be_imported() -> None:
    """A struct that is added to a module of the protocol, and to nothing else."""
    program = """
from lavant.broker.protocol import commands, queues
class Shred(commands.CommandFor[queues.Done], tag="shred", frozen=True):
    '''Shred a queue.'''
import lavant.broker.protocol.registry
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == "TypeError: add to DECLARATIONS: Shred"


def test_a_machine_without_a_handler_cannot_be_imported() -> None:
    methods: dict[str, Any] = {each.handler: str for each in DECLARATIONS if each.machine == QUEUES}
    assert handlers_of(QUEUES, methods, COMMANDS | QUERIES).keys() == {
        each.request for each in DECLARATIONS if each.machine == QUEUES
    }
    del methods["_create_queue"]
    with pytest.raises(TypeError, match="needs a method _create_queue that handles CreateQueue"):
        handlers_of(QUEUES, methods, COMMANDS)
    with pytest.raises(TypeError, match="needs a method _send for Send"):
        steps_of({name: None for name in vars(BrokerMachine) if name != "_send"})


def test_what_is_declared_is_what_the_machines_handle() -> None:
    state = BrokerState()
    assert state._planners.keys() == COMMANDS
    assert state._answers.keys() == QUERIES
    for kind in COMMANDS | QUERIES:
        REGISTRY[kind]
    assert BrokerMachine(state)._steps.keys() == REGISTRY.keys()


def test_observers_are_composed_once_and_only_of_commands() -> None:
    seen: list[str] = []
    table = composed(
        {queues.Send: lambda command, answer: seen.append("first")},
        {queues.Send: lambda command, answer: seen.append("second"), queues.Receive: lambda command, answer: None},
    )
    assert table.keys() == {queues.Send, queues.Receive}
    table[queues.Send](None, None)
    assert seen == ["first", "second"]
    for kind in (queues.Peek, Publish, Foreign):
        with pytest.raises(TypeError, match=f"{kind.__name__} is no command"):
            composed({kind: lambda command, answer: None})


def test_kinds_follow_from_the_base_classes() -> None:
    for each in DECLARATIONS:
        assert each.is_query == issubclass(each.request, QueryFor)
        assert each.is_query != issubclass(each.request, CommandFor)
        assert each.is_recorded == (
            not each.is_query
            and each.name not in ("Publish", "RenewSubscription", "EndLongPolls", "MoveSubscription", "SwitchBalancing")
        )


def test_every_answer_of_the_protocol_is_returned_by_some_request() -> None:
    assert {each.answer for each in DECLARATIONS} | {queues.Refused} == set(ANSWERS)


def test_tags_are_unique() -> None:
    tags = [each.tag for each in DECLARATIONS] + [str(each.__struct_config__.tag) for each in ANSWERS]
    assert len(tags) == len(set(tags))


def test_a_declaration_knows_everything_about_its_request() -> None:
    assert (SEND.name, SEND.tag, SEND.answer, SEND.handler) == ("Send", "send", queues.Sent, "_send")
    assert (SEND.scope, SEND.machine, SEND.is_data) == (PUBLISH, QUEUES, DATA)
    assert SEND.strip is namespaces.strip_entries
    assert SEND.description == "Send messages to a queue."
    assert REGISTRY[queues.DeleteQueue].is_data is ADMINISTRATION
    assert [each.name for each in DECLARATIONS if each.machine == INGEST] == ["Publish"]


def test_requests_are_decoded_by_their_tags() -> None:
    from lavant.broker.protocol.frames import decode_answer, decode_request

    for value in (queues.Send("q", []), queues.Peek("q")):
        assert decode_request(msgspec.msgpack.encode(value)) == value
    assert decode_answer(msgspec.msgpack.encode(queues.Done())) == queues.Done()
    with pytest.raises(msgspec.ValidationError):
        decode_request(msgspec.msgpack.encode(Unspoken()))


def test_the_page_about_the_protocol_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page_with(text, tables()) == text, "run python -m tests.unit.broker.protocol.protocol_reference"
