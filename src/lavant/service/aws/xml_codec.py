"""XML answers for clients of the query protocol.

Lists and maps are flat: each of their elements is an element of the parent, under its own name.

    {"QueueUrls": ["a", "b"]}           <QueueUrl>a</QueueUrl><QueueUrl>b</QueueUrl>
    {"Tags": {"team": "red"}}           <Tag><Key>team</Key><Value>red</Value></Tag>
"""

from __future__ import annotations

import re
from typing import Any, Final
from xml.sax.saxutils import escape

import msgspec

from lavant.service.aws.sqs.errors import SqsError

_NAMESPACE: Final = "http://queue.amazonaws.com/doc/2012-11-05/"
_DECLARATION: Final = '<?xml version="1.0"?>'

_LISTS = {
    "Failed": "BatchResultErrorEntry",
    "Messages": "Message",
    "QueueUrls": "QueueUrl",
    "Results": "ListMessageMoveTasksResultEntry",
    "queueUrls": "QueueUrl",
}
_MAPS = {
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
            element = entry_name if name == "Successful" else _LISTS[name]
            for item in value:
                _append(parts, element, item, entry_name)
        elif name in _MAPS:
            element, key_name, value_name = _MAPS[name]
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
