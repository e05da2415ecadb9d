"""The query protocol of older clients: forms, converted to the shape of JSON requests, and XML answers.

Action=SendMessageBatch                                           {"Entries": [
&SendMessageBatchRequestEntry.1.Id=a                                 {"Id": "a",
&SendMessageBatchRequestEntry.1.MessageBody=hello                     "MessageBody": "hello",
&SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=n             "MessageAttributes": {"n":
&SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType=…      {"DataType": …}}}]}

Lists and maps in XML are flat: each of their elements is an element of the parent, under its own name.

    {"QueueUrls": ["a", "b"]}           <QueueUrl>a</QueueUrl><QueueUrl>b</QueueUrl>
    {"Tags": {"team": "red"}}           <Tag><Key>team</Key><Value>red</Value></Tag>
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import msgspec

from lavant.service.aws.sqs import limits
from lavant.service.aws.sqs.actions import ACTIONS, Action
from lavant.service.aws.sqs.errors import SqsError, missing
from lavant.service.aws.text import decoding_error

_Tree: TypeAlias = "dict[str, _Tree | str]"

_LISTS = {
    "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions",
    "AttributeName": "AttributeNames",
    "BinaryListValue": "BinaryListValues",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "SendMessageBatchRequestEntry": "Entries",
    "StringListValue": "StringListValues",
    "TagKey": "TagKeys",
}
_MAPS = {
    "Attribute": ("Attributes", "Name", "Value"),
    "MessageAttribute": ("MessageAttributes", "Name", "Value"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name", "Value"),
    "Tag": ("Tags", "Key", "Value"),
}
_PLURALS = {plural: name for name, plural in _LISTS.items() if plural != "Entries"}
"""Some clients send `MessageAttributeNames.1`; both are accepted."""
_BATCHES = ("ChangeMessageVisibilityBatch", "DeleteMessageBatch", "SendMessageBatch")
_LEVELS_MAX = 8
"""The deepest name, a list in an attribute of an entry, has seven."""


def parse_form(form: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            form.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=limits.FORM_FIELDS_MAX,
        )
    except ValueError as error:
        raise SqsError("MalformedInput", f"The form cannot be read: {error}.") from None
    return dict(pairs)


def action_of(form: dict[str, str]) -> Action:
    name = form.get("Action")
    if not name:
        raise SqsError("MissingAction", "The request must contain the parameter Action.")
    action = ACTIONS.get(name)
    if action is None:
        raise SqsError("InvalidAction", f"The action {name[:100]} is not valid for this endpoint.")
    return action


def decode_form(action: Action, form: dict[str, str], path: str) -> Any:
    """Decodes the request of an action; the path may name the queue."""
    members = _members(_tree(form))
    if action.name in _BATCHES:
        members.setdefault("Entries", [])
    if action.name == "CreateQueue" and "Tags" in members:
        members["tags"] = members["Tags"]
    if "QueueUrl" not in members and path.strip("/"):
        members["QueueUrl"] = path.rstrip("/")
    try:
        return msgspec.convert(members, action.request, strict=False)
    except msgspec.ValidationError as error:
        raise decoding_error(error) from None


def _tree(form: dict[str, str]) -> _Tree:
    """Converts dotted names to nested levels."""
    root: _Tree = {}
    for name, value in form.items():
        node = root
        *levels, last = name.split(".", _LEVELS_MAX)
        for level in levels:
            below = node.setdefault(level, {})
            if isinstance(below, str):
                raise _contradiction(name)
            node = below
        if isinstance(node.setdefault(last, value), dict):
            raise _contradiction(name)
    return root


def _members(tree: _Tree) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in tree.items():
        singular = _PLURALS.get(name, name)
        if isinstance(value, str):
            if singular in _LISTS:
                members[_LISTS[singular]] = [value]
            else:
                members[name] = value
        elif singular in _LISTS:
            members[_LISTS[singular]] = [
                item if isinstance(item, str) else _members(item) for item in _numbered(singular, value)
            ]
        elif name in _MAPS:
            plural, key_name, value_name = _MAPS[name]
            members[plural] = _map(name, value, key_name, value_name)
        else:
            members[name] = _members(value)
    return members


def _map(name: str, tree: _Tree, key_name: str, value_name: str) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for item in [tree] if key_name in tree else _numbered(name, tree):
        key = item.get(key_name) if isinstance(item, dict) else None
        value = item.get(value_name) if isinstance(item, dict) else None
        if not isinstance(key, str) or value is None:
            raise missing(f"{name}.n.{key_name} and {name}.n.{value_name}")
        pairs[key] = value if isinstance(value, str) else _members(value)
    return pairs


def _numbered(name: str, tree: _Tree) -> list[_Tree | str]:
    """Returns the elements of a list sorted by number."""
    numbers = {}
    for key, value in tree.items():
        if not (key.isascii() and key.isdecimal()) or len(key) > 6 or int(key) > limits.FORM_INDEX_MAX:
            raise SqsError("MalformedInput", f"The parameter {name}.{key[:100]} must have a number behind its name.")
        numbers[int(key)] = value
    return [numbers[number] for number in sorted(numbers)]


def _contradiction(name: str) -> SqsError:
    return SqsError("MalformedInput", f"The parameter {name[:100]} contradicts another: both a value and a structure.")


_NAMESPACE: Final = "http://queue.amazonaws.com/doc/2012-11-05/"
_DECLARATION: Final = '<?xml version="1.0"?>'

_RESULT_LISTS = {
    "Failed": "BatchResultErrorEntry",
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "Results": "ListMessageMoveTasksResultEntry",
    "queueUrls": "QueueUrl",
}
_RESULT_MAPS = {
    "Attributes": ("Attribute", "Name", "Value"),
    "MessageAttributes": ("MessageAttribute", "Name", "Value"),
    "Tags": ("Tag", "Key", "Value"),
}
_ESCAPES = {"\r": "&#13;", '"': "&quot;"}
"""A literal carriage return would be read as a line feed."""
_FORBIDDEN = re.compile("[^\\t\\n\\r -\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def encode_result(action: str, result: msgspec.Struct | None, request_id: str) -> bytes:
    parts = [_DECLARATION, f'<{action}Response xmlns="{_NAMESPACE}">']
    if result is not None:
        parts.append(f"<{action}Result>")
        _append_members(parts, msgspec.to_builtins(result), f"{action}ResultEntry")
        parts.append(f"</{action}Result>")
    parts.append(f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>")
    return "".join(parts).encode()


def encode_error(error: SqsError, request_id: str) -> bytes:
    fault = error.fault
    message = _FORBIDDEN.sub("\ufffd", error.message)
    return (
        f'{_DECLARATION}<ErrorResponse xmlns="{_NAMESPACE}"><Error>'
        f"<Type>{'Sender' if fault.is_senders else 'Receiver'}</Type><Code>{fault.code}</Code>"
        f"<Message>{_text(message)}</Message><Detail/></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()


def _append_members(parts: list[str], members: dict[str, Any], entry_name: str) -> None:
    for name, value in members.items():
        if isinstance(value, list):
            element = entry_name if name == "Successful" else _RESULT_LISTS[name]
            for item in value:
                _append(parts, element, item, entry_name)
        elif name in _RESULT_MAPS:
            element, key_name, value_name = _RESULT_MAPS[name]
            for key, item in value.items():
                _append(parts, element, {key_name: key, value_name: item}, entry_name)
        else:
            _append(parts, name, value, entry_name)


def _append(parts: list[str], name: str, value: Any, entry_name: str) -> None:
    parts.append(f"<{name}>")
    if isinstance(value, dict):
        _append_members(parts, value, entry_name)
    elif isinstance(value, bool):
        parts.append("true" if value else "false")
    else:
        parts.append(_text(str(value)))
    parts.append(f"</{name}>")


def _text(value: str) -> str:
    return escape(value, _ESCAPES)
