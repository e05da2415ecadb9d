"""`lavant keys …`: API keys and SQS credentials."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

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
        _new_credential(name, file, scope, namespace)
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
    print(secret)


def _new_credential(name: str, file: Path, scopes: list[str], namespace: str) -> None:
    from lavant.service.aws.credentials import credential_text, new_credential, read_credentials  # noqa: PLC0415

    credential = new_credential(name, scopes, namespace)
    text = credential_text(credential)
    if file.exists():
        if any(each.name == name for each in read_credentials(file)):
            raise InvalidValue(f"{file} has a profile {name!r} already; remove it first, or choose another name")
        text = "\n" + text
    _append(file, text)
    print(f"aws_access_key_id = {credential.access_key}\naws_secret_access_key = {credential.secret}")


def _append(file: Path, text: str) -> None:
    """Append; a new file is readable by its owner only, since it holds permissions and SQS secrets."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8") as opened:
        opened.write(text)


@keys.command("ls")
def ls(file: KeysFile, sqs: ForSqs = False) -> None:
    """List the keys of a file, without secrets."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from lavant.service.auth.keys import read_keys  # noqa: PLC0415
    from lavant.service.aws.credentials import read_credentials  # noqa: PLC0415

    if sqs:
        table = Table("name", "scopes", "namespace", "access key", box=None, pad_edge=False)
        for credential in read_credentials(file):
            table.add_row(credential.name, " ".join(credential.scopes), credential.namespace, credential.access_key)
        Console(highlight=False).print(table)
        return
    table = Table("name", "scopes", "namespace", "publications/s", "sha256", box=None, pad_edge=False)
    for entry in read_keys(file):
        rate = "" if entry.publications_per_s is None else f"{entry.publications_per_s:g}"
        table.add_row(entry.name, " ".join(entry.scopes), entry.namespace, rate, entry.sha256[:12] + "…")
    Console(highlight=False).print(table)
