"""`lavant keys …`: API keys and SQS credentials."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from lavant.cli.common import AsJson, print_json, print_table
from lavant.core.errors import InvalidValue

keys = typer.Typer(help="Create and list API keys.", no_args_is_help=True, add_completion=False)

KeysFile = Annotated[
    Path, typer.Option("--file", help="file of `lavant serve --keys-file`, or with --sqs of --credentials-file")
]
ForSqs = Annotated[bool, typer.Option("--sqs", help="SQS credentials, which sign requests")]


@keys.command("new")
def new(
    name: Annotated[str, typer.Argument(help="name of the key, shown in lists and errors")],
    file: KeysFile,
    scope: Annotated[
        list[str], typer.Option(help="publish, subscribe or admin, repeatable; or broker, for links between brokers")
    ],
    namespace: Annotated[str, typer.Option(help="namespace that the key may use")] = "",
    publications_per_s: Annotated[float | None, typer.Option(help="rate limit; none by default")] = None,
    sqs: ForSqs = False,
    as_json: AsJson = False,
) -> None:
    """Create a key, append it to a file, and print its secret, which is shown only now and stored nowhere.

    With --sqs, create an access key and secret; the file holds both, since they verify signatures.

    A running server rereads the file at SIGHUP.
    """
    from lavant.service.auth.keys import KeyEntry, entry_text, new_secret, read_keys, sha256_of  # noqa: PLC0415

    if sqs:
        if publications_per_s is not None:
            raise InvalidValue(
                "--publications-per-s cannot be used with --sqs: SQS clients send messages, they do not publish"
            )
        _new_credential(name, file, scope, namespace, as_json=as_json)
        return
    secret = new_secret()
    entry = KeyEntry(
        name=name,
        sha256=sha256_of(secret),
        scopes=scope,
        namespace=namespace,
        publications_per_s=publications_per_s,
    )
    if file.exists():
        if any(each.name == name for each in read_keys(file)):
            raise InvalidValue(f"{file} has a key {name!r} already; remove it first, or choose another name")
        text = "\n" + entry_text(entry)
    else:
        text = entry_text(entry)
    _append(file, text)
    print_json({"name": name, "secret": secret}) if as_json else print(secret)


def _new_credential(name: str, file: Path, scopes: list[str], namespace: str, *, as_json: bool) -> None:
    from lavant.service.aws.credentials import credential_text, new_credential, read_credentials  # noqa: PLC0415

    credential = new_credential(name, scopes, namespace)
    text = credential_text(credential)
    if file.exists():
        if any(each.name == name for each in read_credentials(file)):
            raise InvalidValue(f"{file} has a profile {name!r} already; remove it first, or choose another name")
        text = "\n" + text
    _append(file, text)
    secrets = {"aws_access_key_id": credential.access_key, "aws_secret_access_key": credential.secret}
    if as_json:
        print_json({"name": name, **secrets})
    else:
        print("\n".join(f"{field} = {value}" for field, value in secrets.items()))


def _append(file: Path, text: str) -> None:
    """Append; a new file is readable by its owner only, since it holds permissions and SQS secrets."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8") as opened:
        opened.write(text)


@keys.command("ls")
def ls(file: KeysFile, sqs: ForSqs = False, as_json: AsJson = False) -> None:
    """List the keys of a file, without secrets."""
    from lavant.service.auth.keys import read_keys  # noqa: PLC0415
    from lavant.service.aws.credentials import read_credentials  # noqa: PLC0415

    rows: list[dict[str, Any]]
    columns: tuple[str, ...]
    if sqs:
        rows = [
            {"name": each.name, "scopes": each.scopes, "namespace": each.namespace, "access_key": each.access_key}
            for each in read_credentials(file)
        ]
        columns = ("name", "scopes", "namespace", "access key")
    else:
        rows = [
            {
                "name": each.name,
                "scopes": each.scopes,
                "namespace": each.namespace,
                "publications_per_s": each.publications_per_s,
                "sha256": each.sha256[:12] + "…",
            }
            for each in read_keys(file)
        ]
        columns = ("name", "scopes", "namespace", "publications/s", "sha256")
    if as_json:
        print_json([{**row, "scopes": list(row["scopes"])} for row in rows])
    else:
        print_table(columns, [[_cell(value) for value in row.values()] for row in rows])


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case float():
            return f"{value:g}"
        case _:
            return " ".join(value)
