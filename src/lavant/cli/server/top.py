"""`lavant top`: live view of a server in the terminal."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from lavant.cli.common import CaFile, Key, Url, console
from lavant.core.addresses import QUEUES_URL


def top(
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    every: Annotated[float, typer.Option(help="seconds between refreshes", min=0.1)] = 1.0,
    count: Annotated[int | None, typer.Option(help="exit after this many refreshes", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print a JSON line per refresh")] = False,
) -> None:
    """Show requests, connections and the busiest queues until Ctrl-C. Into a pipe, print one view after the other."""
    import msgspec  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    from lavant.cli.reports.top import fetch, rows, screen, server  # noqa: PLC0415

    out = console()
    before = fetch(url, key, ca_file, time.monotonic())
    refreshes = 0
    with Live(console=out, screen=out.is_terminal and not as_json, auto_refresh=False) as live:
        try:
            while count is None or refreshes < count:
                time.sleep(every)
                after = fetch(url, key, ca_file, time.monotonic())
                if as_json:
                    view = {"server": server(before, after), "queues": rows(before, after)}
                    print(msgspec.json.encode(view).decode(), flush=True)
                elif out.is_terminal:
                    live.update(screen(url, before, after), refresh=True)
                else:
                    out.print(screen(url, before, after))
                before = after
                refreshes += 1
        except KeyboardInterrupt:
            return
