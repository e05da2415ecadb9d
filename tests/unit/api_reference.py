"""Writes `docs/reference/api.md` from the docstrings of what `lavant` exports: `python -m tests.unit.api_reference`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import lavant

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "api.md"
HEAD = """# Python API

What `lavant` exports. The page is generated from the docstrings (`python -m tests.unit.api_reference`).
[Client](../client.md) is the guide, with examples; [workers](../workers.md) and [workflows](../workflows.md) are about
jobs.

An `AsyncClient`, `AsyncQueue`, `AsyncConsumer` or `AsyncSubscription` has the methods of its counterpart without
`Async`, as coroutine functions and asynchronous iterators.
"""
SECTIONS = {
    "Clients": ("connect", "connect_async", "Client", "AsyncClient", "Retries", "Publisher", "PublisherConfig"),
    "Publications and notifications": ("Publication", "Subscription", "AsyncSubscription", "Notification", "Webhook"),
    "Queues": ("Queue", "AsyncQueue", "QueueConfig", "Consumer", "AsyncConsumer", "QueueMessage"),
    "Jobs and workers": ("task", "Task", "Worker"),
    "Errors": (),
    "Encryption": ("Key", "NumericAttribute", "Schema"),
    "Matching and filters": (),
    "Values": (),
}
"""Names in this order; the rest of each section follows by the module that defines it."""
_HOMES = {"lavant.core.errors": "Errors", "lavant.broker.matching": "Matching and filters"}
_HOMES |= {"lavant.broker.filters": "Matching and filters", "lavant.core.publications": "Matching and filters"}
_HOMES |= {"lavant.client.workers": "Jobs and workers", "lavant.client.workflows": "Jobs and workers"}
MIRRORS = ("AsyncClient", "AsyncQueue", "AsyncConsumer", "AsyncSubscription")


def rendered() -> str:
    sections: dict[str, list[str]] = {title: list(names) for title, names in SECTIONS.items()}
    placed = {name for names in SECTIONS.values() for name in names}
    for name in lavant.__all__:
        if name not in placed and name not in {"errors", "__version__"}:
            sections[_section_of(getattr(lavant, name))].append(name)
    parts = [HEAD]
    for title, names in sections.items():
        parts.append(f"\n## {title}\n")
        if title == "Errors":
            parts.append("\n`lavant.errors` is the module with all classes; these are the kinds.\n")
        parts += [_entry(name, getattr(lavant, name)) for name in names]
    return "".join(parts)


def _section_of(value: Any) -> str:
    home = value.__module__
    return next((title for prefix, title in _HOMES.items() if home.startswith(prefix)), "Values")


def _entry(name: str, value: Any) -> str:
    if not isinstance(value, type):
        return f"\n### `{name}{_signature(value)}`\n\n{_text(value)}\n"
    if issubclass(value, Exception):
        return f"\n* **`{name}`**: {_text(value)}"
    lines = [f"\n### `{name}`\n\n{_text(value)}\n"]
    fields = getattr(value, "__struct_fields__", ())
    if fields:
        lines.append(f"\nFields: {', '.join(f'`{field}`' for field in fields)}.\n")
    if name not in MIRRORS:
        methods = [_member(each, found) for each, found in _members(value)]
        lines += ["\n", *methods] if methods else []
    return "".join(lines)


def _members(kind: type) -> list[tuple[str, Any]]:
    """Public methods and properties with a docstring, in the order of their definition, those of bases first."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("lavant"):
            for name in vars(base):
                if not name.startswith("_") and name not in getattr(kind, "__struct_fields__", ()):
                    found[name] = inspect.getattr_static(kind, name)
    return [(name, value) for name, value in found.items() if _is_shown(value)]


def _is_shown(value: Any) -> bool:
    return (inspect.isfunction(value) or isinstance(value, property | classmethod)) and bool(inspect.getdoc(value))


def _member(name: str, value: Any) -> str:
    if isinstance(value, property):
        return f"* **`{name}`**: {_text(value)}\n"
    function = value.__func__ if isinstance(value, classmethod) else value
    return f"* **`{name}{_signature(function)}`**: {_text(function)}\n"


def _signature(function: Any) -> str:
    """Without `self`; defaults that are objects are left out."""
    signature = inspect.signature(function)
    kept = [_plain(each) for name, each in signature.parameters.items() if name not in {"self", "cls"}]
    result = signature.return_annotation
    returned = result if isinstance(result, str) else getattr(result, "__name__", str(result))
    text = str(inspect.Signature(kept)).replace("...", "…")
    return f"{text} -> {returned}"


class _Shown:
    """An annotation or a default that is printed as it is written in the source."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    annotation, default = parameter.annotation, parameter.default
    if isinstance(annotation, str):
        parameter = parameter.replace(annotation=_Shown(annotation))
    if default is not inspect.Parameter.empty and not isinstance(default, str | bytes | int | float | None):
        parameter = parameter.replace(default=_Shown("…"))
    return parameter


def _text(value: Any) -> str:
    """The docstring without examples, on one line."""
    written = value.__doc__ if isinstance(value, type) else inspect.getdoc(value)
    paragraphs = inspect.cleandoc(written or "").split("\n\n")
    kept = [" ".join(each.split()) for each in paragraphs if not each.lstrip().startswith(">>>")]
    return " ".join(kept)


if __name__ == "__main__":
    PAGE.write_text(rendered(), encoding="utf-8")
