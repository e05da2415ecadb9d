"""`lavant sub`: subscribe and print notifications."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lavant.cli.common import (
    EXIT_FAILED,
    AsJson,
    CaFile,
    Encryption,
    Key,
    Url,
    client,
    note,
    print_json,
    printable,
    time_of,
)
from lavant.core.addresses import QUEUES_URL
from lavant.core.errors import InvalidValue
from lavant.core.seconds import SECOND_MS

if TYPE_CHECKING:
    from lavant.client.client import Client
    from lavant.client.subscriptions.notification import Notification
    from lavant.client.subscriptions.subscription import Subscription

PREFETCH = 100
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO = re.compile(r"([0-9]+)([smhd])")


def sub(
    filter: Annotated[
        str | None, typer.Argument(help="filter, as an expression or as triples; optional if subscription NAME exists")
    ] = None,
    name: Annotated[
        str, typer.Option(help="name of a durable subscription: notifications are kept while the command does not run")
    ] = "",
    count: Annotated[int | None, typer.Option(min=1, help="exit after this many notifications")] = None,
    timeout_s: Annotated[float | None, typer.Option("--timeout", min=0, help="exit after this many seconds")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="drop waiting notifications older than this: 90s, 10m, 2h, 1d or an ISO 8601 time"),
    ] = None,
    encrypt: Encryption = None,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Print notifications until Ctrl-C. Exit code 1 if fewer than --count arrived.

    Without --name, the subscription ends with the command.

    With --name, matching publications are kept from now on and delivered when the command runs again.

    A notification is acknowledged once it is printed.
    """
    if filter is None and not name:
        raise InvalidValue('give a filter, as in `lavant sub "price > 100"`, or the --name of a subscription')
    if since is not None and not name:
        raise InvalidValue("--since needs --name: without a name, no earlier notifications are kept")
    since_s = None if since is None else _since_s(since, time.time())
    printed = 0
    try:
        with (
            _interrupted_by_sigterm(),
            client(url, key, ca_file, encryption=encrypt, is_patient=True) as server,
            _subscription(server, filter, name, count) as subscription,
        ):
            note(f"subscribed as {subscription.name}; Ctrl-C ends it")
            # One iterator for all: Ctrl-C is lost if it comes while Python finalizes an iterator that was dropped.
            notifications = subscription.notifications(timeout_s=timeout_s)
            for notification in notifications:
                if since_s is None or notification.time_s >= since_s:
                    _show(notification, as_json=as_json)
                    printed += 1
                if printed == count:
                    break
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:  # the reader of the pipe has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(EXIT_FAILED if count is not None and printed < count else 0)


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Handle SIGTERM as Ctrl-C, so that leases are released."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _subscription(server: Client, filter: str | None, name: str, count: int | None) -> Subscription:
    """Prefetches no more than will be printed."""
    prefetch = PREFETCH if count is None else min(count, PREFETCH)
    if filter is None:
        return server.subscription(name, prefetch=prefetch)
    return server.subscribe(filter, name=name, prefetch=prefetch)


def _show(notification: Notification, *, as_json: bool) -> None:
    """Print and flush: a notification is acknowledged next, so none may stay in a buffer."""
    if as_json:
        print_json(_as_dict(notification))
    else:
        fields = [f"{name}={_value(value)}" for name, value in notification.attributes.items()]
        if notification.payload is not None:
            fields.append(f"payload={printable(notification.payload.decode(errors='replace'))}")
        print(f"{time_of(_time_ms(notification))}  {printable(notification.id)}  {'  '.join(fields)}")
    sys.stdout.flush()


def _as_dict(notification: Notification) -> dict[str, Any]:
    """In the format of `lavant pub`, so that the output can be published again."""
    import base64  # noqa: PLC0415

    row: dict[str, Any] = {**notification.attributes, "@id": notification.id, "@time_ms": _time_ms(notification)}
    if notification.payload is not None:
        row["@payload"] = base64.b64encode(notification.payload).decode()
    return row


def _time_ms(notification: Notification) -> int:
    return round(notification.time_s * SECOND_MS)


def _value(value: object) -> str:
    """An attribute value in the syntax of `lavant pub`."""
    import json  # noqa: PLC0415

    from lavant.cli.messaging.publications import attributes_of  # noqa: PLC0415

    if not isinstance(value, str):
        return json.dumps(value)
    return printable(value if attributes_of([f"_={value}"])["_"] == value else json.dumps(value, ensure_ascii=False))


def _since_s(text: str, now_s: float) -> float:
    """
    >>> _since_s("2m", now_s=1000.0), _since_s("1970-01-01T00:00:05Z", now_s=1000.0)
    (880.0, 5.0)
    """
    found = _AGO.fullmatch(text)
    if found is not None:
        return now_s - int(found[1]) * _UNITS_S[found[2]]
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(
            f"--since {text!r} is neither an age such as 90s, 10m, 2h, 1d nor an ISO 8601 time"
        ) from None
    return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
