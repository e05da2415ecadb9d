"""`lavant reslice`: change the number of slices of stored subscriptions."""

from __future__ import annotations

from typing import Annotated

import typer

from lavant.cli.common import AsJson, counted, report


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
    uri = opened.storage.uri
    text = f"{uri}: {counted(slices, 'slice')} instead of {before}, from version {version} on"
    if before == slices:
        text = f"{uri} has {counted(slices, 'slice')} already"
    report(text, as_json=as_json, store=uri, before=before, slices=slices, version=version)
