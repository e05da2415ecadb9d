"""`lavant sub`: subscribe, and print what comes."""

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

from lavant.cli.common import EXIT_FAILED, AsJson, CaFile, Encryption, Key, Url, client, print_json, printable, time_of
from lavant.core.errors import InvalidValue
from lavant.core.ports import QUEUES_URL

if TYPE_CHECKING:
    from lavant.client.client import Client
    from lavant.client.subscriptions.notification import Notification
    from lavant.client.subscriptions.subscription import ClientSubscription

PREFETCH = 100
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO = re.compile(r"([0-9]+)([smhd])")


def sub(
    filter: Annotated[
        str | None, typer.Argument(help="what to have, as expression or triples; may be left out if NAME is there")
    ] = None,
    name: Annotated[str, typer.Option(help="go on under this name, or begin; kept while nobody listens")] = "",
    count: Annotated[int | None, typer.Option(min=1, help="end after so many")] = None,
    timeout_s: Annotated[float | None, typer.Option("--timeout", min=0, help="end after so many seconds")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="of what waits under NAME, pass over what is older: 90s, 10m, 2h, 1d or an ISO 8601 time"),
    ] = None,
    encrypt: Encryption = None,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Print notifications as they come, until Ctrl-C; exit code 1 if fewer than --count came.

    Without a name, the subscription ends with the command.

    With one, what matches is kept from now on, and comes when the command is started again.

    A notification is taken out of its queue once it is printed.
    """
    if filter is None and not name:
        raise InvalidValue('say what you want, as in `lavant sub "price > 100"`, or the --name of a subscription')
    if since is not None and not name:
        raise InvalidValue("--since is about what waits under a --name; without one, nothing was kept from before")
    since_ms = None if since is None else _since_ms(since, time.time())
    shown = 0
    try:
        with (
            _interrupted_by_sigterm(),
            client(url, key, ca_file, encryption=encrypt, is_patient=True) as server,
            _subscription(server, filter, name, count) as subscription,
        ):
            print(f"subscribed as {subscription.name}; Ctrl-C ends it", file=sys.stderr, flush=True)
            deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
            while count is None or shown < count:
                left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
                notification = next(subscription.notifications(count=1, timeout_s=left_s), None)
                if notification is None:
                    break
                if since_ms is None or notification.time_ms >= since_ms:
                    _show(notification, as_json=as_json)
                    shown += 1
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(EXIT_FAILED if count is not None and shown < count else 0)


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """So that it ends in good order then, too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _subscription(server: Client, filter: str | None, name: str, count: int | None) -> ClientSubscription:
    """No more is received ahead than is going to be shown."""
    prefetch = PREFETCH if count is None else min(count, PREFETCH)
    if filter is None:
        return server.subscription(name, prefetch=prefetch)
    return server.subscribe(filter, name=name, prefetch=prefetch)


def _show(notification: Notification, *, as_json: bool) -> None:
    """What is not seen by anybody must not be taken out, so nothing stays in a buffer."""
    if as_json:
        print_json(_as_dict(notification))
    else:
        said = [f"{name}={_value(value)}" for name, value in notification.attributes.items()]
        if notification.payload is not None:
            said.append(f"payload={printable(notification.payload.decode(errors='replace'))}")
        print(f"{time_of(notification.time_ms)}  {printable(notification.id)}  {'  '.join(said)}")
    sys.stdout.flush()


def _as_dict(notification: Notification) -> dict[str, Any]:
    """As it is published, so that what is printed can be published again."""
    import base64  # noqa: PLC0415

    row: dict[str, Any] = {**notification.attributes, "@id": notification.id, "@time_ms": notification.time_ms}
    if notification.payload is not None:
        row["@payload"] = base64.b64encode(notification.payload).decode()
    return row


def _value(value: object) -> str:
    """As it could be given to `lavant pub`."""
    import json  # noqa: PLC0415

    from lavant.cli.messaging.publications import attributes_of  # noqa: PLC0415

    if not isinstance(value, str):
        return json.dumps(value)
    return printable(value if attributes_of([f"_={value}"])["_"] == value else json.dumps(value, ensure_ascii=False))


def _since_ms(text: str, now_s: float) -> int:
    """
    >>> _since_ms("2m", now_s=1000.0), _since_ms("1970-01-01T00:00:05Z", now_s=1000.0)
    (880000, 5000)
    """
    found = _AGO.fullmatch(text)
    if found is not None:
        return int((now_s - int(found[1]) * _UNITS_S[found[2]]) * 1000)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(
            f"--since {text!r} is neither an age such as 90s, 10m, 2h, 1d nor an ISO 8601 time"
        ) from None
    return int((when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp() * 1000)
