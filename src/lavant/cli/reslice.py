"""`lavant reslice`: change the number of slices of stored subscriptions."""

from __future__ import annotations

from typing import Annotated

import typer

from lavant.cli.common import AsJson, counted, print_json


def reslice(
    store: Annotated[str, typer.Argument(metavar="STORE", help="path or URI of a slice store")],
    slices: Annotated[int, typer.Option(min=1, help="number of slices from now on")],
    as_json: AsJson = False,
) -> None:
    """Divide stored subscriptions among another number of slices. Streams follow with their next batch.

    No other process may change a local store meanwhile.
    """
    from lavant.broker.slices import SliceStore  # noqa: PLC0415

    opened = SliceStore.open(store)
    before = opened.slices
    version = opened.reslice(slices)
    if as_json:
        print_json({"store": opened.storage.uri, "before": before, "slices": slices, "version": version})
    elif before == slices:
        print(f"{opened.storage.uri} has {counted(slices, 'slice')} already")
    else:
        print(f"{opened.storage.uri}: {counted(slices, 'slice')} instead of {before}, from version {version} on")
