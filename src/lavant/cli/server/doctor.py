"""`lavant doctor`: check this machine and a server, with remedies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lavant.cli.common import AsJson, CaFile, Key, Url, console, progress_console
from lavant.core.addresses import QUEUES_URL

FAILED = 1
_MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "bad": ("BAD", "red")}


def doctor(
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    data: Annotated[Path, typer.Option(help="data directory whose disk is checked")] = Path("."),
    as_json: AsJson = False,
    *,
    context: typer.Context,
) -> None:
    """Check that this machine has what Lavant needs and that the server is healthy. Exit code 1 if not.

    Without --url, no server needs to run at the default address.
    """
    import msgspec  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from lavant.cli.reports import doctor as checks  # noqa: PLC0415

    out = console()
    source = context.get_parameter_source("url")
    is_expected = source is None or source.name != "DEFAULT"
    with progress_console().status("checking"):
        findings = [
            checks.python(),
            checks.memory(),
            checks.kernels(),
            checks.disk(data),
            checks.open_files(),
            checks.java(),
            *checks.server(url, key, ca_file, is_expected=is_expected),
        ]
    if as_json:
        print(msgspec.json.encode(findings).decode())
    else:
        width = max(len(finding.what) for finding in findings)
        for finding in findings:
            mark, colour = _MARKS[finding.verdict]
            out.print(Text(f"{mark:<5}", style=colour) + Text(f"{finding.what:<{width}}  {finding.said}"))
            if finding.remedy:
                out.print(Text(f"{'':<{width + 7}}→ {finding.remedy}"))
    if any(finding.verdict == "bad" for finding in findings):
        raise typer.Exit(FAILED)
