"""`lavant demo`: a stream of stock quotes through the Spark pipeline, and what happens to it."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    subscriptions: Annotated[
        int, typer.Option(min=1, help="subscriptions, by the templates of the literature")
    ] = 100_000,
    seconds: Annotated[float, typer.Option(min=1, help="how long quotes are published")] = 20.0,
    rate: Annotated[int, typer.Option(min=1, help="quotes a second")] = 500,
) -> None:
    """Publish stock quotes, match them on Spark, and show who was notified, how fast, and why."""
    from lavant.console.demo import run_demo  # noqa: PLC0415

    run_demo(subscriptions=subscriptions, seconds=seconds, rate=rate)
