"""`lavant top`: what a server does, live in the terminal."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from lavant.core.ports import QUEUES_URL


def top(
    url: Annotated[str, typer.Option(help="the server", envvar="LAVANT_URL")] = QUEUES_URL,
    key: Annotated[str | None, typer.Option(help="API key", envvar="LAVANT_KEY")] = None,
    every: Annotated[float, typer.Option(help="seconds between two looks", min=0.1)] = 1.0,
    count: Annotated[int | None, typer.Option(help="stop after so many looks", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print a line of JSON for each look")] = False,
) -> None:
    """Show requests, connections and the busiest queues until Ctrl-C. Into a pipe, one look after the other."""
    import msgspec  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    from lavant.cli.reports.top import fetch, rows, screen, server  # noqa: PLC0415

    console = Console(highlight=False)
    before = fetch(url, key, time.monotonic())
    looks = 0
    with Live(console=console, screen=console.is_terminal and not as_json, auto_refresh=False) as live:
        try:
            while count is None or looks < count:
                time.sleep(every)
                after = fetch(url, key, time.monotonic())
                if as_json:
                    look = {"server": server(before, after), "queues": rows(before, after)}
                    print(msgspec.json.encode(look).decode(), flush=True)
                elif console.is_terminal:
                    live.update(screen(url, before, after), refresh=True)
                else:
                    console.print(screen(url, before, after))
                before = after
                looks += 1
        except KeyboardInterrupt:
            return
