"""`lavant explain`: does a publication match a filter, and which predicate decides it?"""

from __future__ import annotations

import json
from typing import Annotated

import typer


def explain(
    filter: Annotated[str, typer.Argument(help="a filter, as expression or triples")],
    publication: Annotated[str, typer.Argument(help='attributes as JSON: {"symbol": "IBM", "volume": 5}')],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show predicate by predicate whether a publication matches a filter; exit code 1 if it does not."""
    from lavant.broker.filters import Filter  # noqa: PLC0415
    from lavant.broker.filters import explain as explain_filter  # noqa: PLC0415
    from lavant.core.errors import InvalidValue  # noqa: PLC0415
    from lavant.core.jsonlines import from_json_lines  # noqa: PLC0415

    parsed = Filter.parse(filter)
    rows = from_json_lines(publication.encode()).to_dicts()
    if len(rows) != 1:
        raise InvalidValue(f'give one publication as JSON, such as {{"volume": 5}}; got {len(rows)} lines')
    attributes = rows[0]
    matches = parsed.matches(attributes)
    lines = explain_filter(parsed, attributes)
    if as_json:
        shown = [{"predicate": line.predicate, "value": line.value, "held": line.held} for line in lines]
        print(json.dumps({"filter": str(parsed), "matches": matches, "predicates": shown}))
    else:
        print(f"filter   {parsed}")
        for line in lines:
            value = "absent" if line.value is None else repr(line.value)
            print(f"  {'holds' if line.held else 'FAILS'}  {line.predicate}    (is {value})")
        print("matches" if matches else "does not match")
    raise typer.Exit(0 if matches else 1)
