"""`lavant explain match`: whether a publication matches a filter, predicate by predicate."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lavant.cli.common import EXIT_FAILED, AsJson, bytes_of

explain = typer.Typer(help="Explain matches.", no_args_is_help=True)


@explain.command("match")
def match(
    filter: Annotated[str, typer.Argument(help="filter, as an expression or as triples")],
    publication: Annotated[str, typer.Argument(help='attributes as JSON: {"symbol": "IBM", "volume": 5}')],
    as_json: AsJson = False,
) -> None:
    """Show for each predicate whether a publication satisfies it. Exit code 1 if the filter does not match."""
    from lavant.broker.filters import Filter  # noqa: PLC0415
    from lavant.broker.filters import explain as explain_filter  # noqa: PLC0415
    from lavant.broker.filters.explanation import kind_of  # noqa: PLC0415
    from lavant.core.publications.json_lines import publication_of  # noqa: PLC0415

    parsed = Filter.parse(filter)
    attributes = publication_of(bytes_of(publication)).attributes
    matches = parsed.matches(attributes)
    lines = explain_filter(parsed, attributes)
    if as_json:
        predicates = [
            {"predicate": line.predicate, "value": line.value, "held": line.held, "wanted_type": line.wanted}
            for line in lines
        ]
        print(json.dumps({"filter": str(parsed), "matches": matches, "predicates": predicates}))
    else:
        print(f"filter   {parsed}")
        for line in lines:
            value = "absent" if line.value is None else repr(line.value)
            wanted = (
                "" if line.wanted is None or line.value is None else f", {kind_of(line.value)}; {line.wanted} is wanted"
            )
            print(f"  {'holds' if line.held else 'FAILS'}  {line.predicate}    (is {value}{wanted})")
        print("matches" if matches else "does not match")
    raise typer.Exit(0 if matches else EXIT_FAILED)
