"""`lavant keygen` and `lavant encrypt`: keys, and encrypted files for `lavant stream`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lavant.cli.common import AsJson, report
from lavant.core.errors import UNDECODABLE


def keygen(
    key: Annotated[Path, typer.Argument(help="file for the new key")],
    attribute: Annotated[list[str], typer.Option(help="NAME:MIN:MAX:RESOLUTION of a numeric attribute; repeatable")],
    as_json: AsJson = False,
) -> None:
    """Generate a key for encrypted filters over numeric attributes."""
    from lavant.client.encryption import Key, Schema  # noqa: PLC0415

    Key.generate(Schema.of(*(_attribute(text) for text in attribute))).save(key)
    text = f"wrote {key}; share it with publishers and subscribers, and never with the server"
    report(text, as_json=as_json, key=str(key))


def encrypt(
    key: Annotated[Path, typer.Option(help="key file of `lavant keygen`")],
    input: Annotated[Path, typer.Option(help="JSON lines of subscriptions (id and filter) or of publications")],
    output: Annotated[Path, typer.Option(help="Parquet file for the result")],
    as_json: AsJson = False,
) -> None:
    """Encrypt subscriptions or publications for `lavant stream --scheme encrypted`."""
    import msgspec  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    from lavant.client.encryption import Key  # noqa: PLC0415
    from lavant.client.encryption.files import encrypted_publications, encrypted_subscriptions  # noqa: PLC0415
    from lavant.core.errors import InvalidValue  # noqa: PLC0415

    secret = Key.load(key)
    try:
        rows = [msgspec.json.decode(line) for line in input.read_bytes().splitlines() if line.strip()]
    except (OSError, *UNDECODABLE) as error:
        raise InvalidValue(f"cannot read {input} as JSON lines: {error}") from None
    are_subscriptions = bool(rows) and all(isinstance(row, dict) and set(row) == {"id", "filter"} for row in rows)
    table = (encrypted_subscriptions if are_subscriptions else encrypted_publications)(secret, rows)
    pq.write_table(table, output)
    what = "subscriptions" if are_subscriptions else "publications"
    report(f"{len(rows):,} {what} encrypted into {output}", as_json=as_json, **{what: len(rows)}, output=str(output))


def _attribute(text: str):  # type: ignore[no-untyped-def]
    from lavant.client.encryption import NumericAttribute  # noqa: PLC0415
    from lavant.core.errors import InvalidValue  # noqa: PLC0415

    try:
        name, low, high, resolution = text.rsplit(":", 3)
        return NumericAttribute(name, float(low), float(high), float(resolution))
    except ValueError as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue(f"--attribute {text!r} is not NAME:MIN:MAX:RESOLUTION, such as price:0:1000:0.01") from None
