"""`lavant subscriptions ls | add | update | rm | info`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lavant.broker.subscriptions.limits import WEBHOOK_TIMEOUT_MS_MAX, WEBHOOK_TIMEOUT_MS_MIN
from lavant.cli.common import (
    AsJson,
    CaFile,
    Encryption,
    Key,
    Url,
    client,
    confirm,
    print_json,
    print_table,
    report,
    time_of,
)
from lavant.client.values.mirror import to_protocol
from lavant.core.addresses import QUEUES_URL
from lavant.core.errors import InvalidValue, LavantError
from lavant.core.seconds import SECOND_MS

if TYPE_CHECKING:
    from lavant.broker.protocol.queues import Described
    from lavant.broker.protocol.subscriptions import SubscriptionState

subscriptions = typer.Typer(help="List, add, update, show and remove subscriptions.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the subscription")]


@subscriptions.command("ls")
def ls(
    prefix: Annotated[str, typer.Argument(help="list only names with this prefix")] = "",
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """List subscriptions, their waiting notifications, and when temporary ones expire."""
    from lavant.client import queue_calls as calls  # noqa: PLC0415

    with client(url, key, ca_file) as server:
        found = list(server.subscriptions(prefix))
        queues = server.pipeline([calls.describe(each.queue) for each in found])
    pairs = [
        (to_protocol(state), queue if isinstance(queue, LavantError) else to_protocol(queue))
        for state, queue in zip(found, queues, strict=True)
    ]
    if as_json:
        print_json([_as_dict(state, queue) for state, queue in pairs])
        return
    columns = ("name", "waiting", "in flight", "ends", "goes to", "filter")
    rows = [(state.name, *_figures(queue), _end(state), _destination(state), _filter(state)) for state, queue in pairs]
    print_table(columns, rows, numbers=columns[1:3])


@subscriptions.command("add")
def add(
    filter: Annotated[str, typer.Argument(help="filter, as an expression or as triples")],
    name: Annotated[str, typer.Option(help="name of the subscription")],
    queue: Annotated[str, typer.Option(help="queue for the notifications; by default one of its own")] = "",
    webhook: Annotated[str | None, typer.Option(metavar="URL", help="deliver by POST to this webhook")] = None,
    attempts_max: Annotated[
        int | None, typer.Option(help="webhook: attempts before a notification is dead-lettered; 10 by default")
    ] = None,
    timeout_ms: Annotated[
        int | None,
        typer.Option(
            min=WEBHOOK_TIMEOUT_MS_MIN,
            max=WEBHOOK_TIMEOUT_MS_MAX,
            help="webhook: timeout of one attempt; 10000 by default",
        ),
    ] = None,
    secret: Annotated[
        str, typer.Option(help="webhook: secret that signs the requests", envvar="LAVANT_WEBHOOK_SECRET")
    ] = "",
    encrypt: Encryption = None,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Add a subscription. Matching publications are kept until received. Adding the same one again changes nothing."""
    from lavant.client.values.subscriptions import Webhook  # noqa: PLC0415

    options: dict[str, Any] = {"attempts_max": attempts_max, "timeout_ms": timeout_ms, "secret": secret or None}
    given = {option: value for option, value in options.items() if value is not None}
    if webhook is None and given:
        raise InvalidValue(f"--{next(iter(given)).replace('_', '-')} needs --webhook URL")
    with client(url, key, ca_file, encryption=encrypt) as server:
        if timeout_ms is not None:
            given["timeout_s"] = given.pop("timeout_ms") / SECOND_MS
        wanted = None if webhook is None else Webhook(webhook, **given)
        state = to_protocol(server.subscribe(filter, name=name, queue=queue, webhook=wanted).state)
    report(f"{state.name} goes to {_destination(state)}", as_json=as_json, **_as_dict(state, None))


@subscriptions.command("update")
def update(
    name: Name,
    filter: Annotated[str, typer.Option(help="new filter, as an expression or as triples")],
    encrypt: Encryption = None,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Change the filter of a subscription for publications from now on. Waiting notifications stay in its queue."""
    with client(url, key, ca_file, encryption=encrypt) as server:
        subscription = server.subscription(name)
        subscription.update(filter)
        state = to_protocol(subscription.state)
    report(f"{state.name} now matches {_filter(state)}", as_json=as_json, **_as_dict(state, None))


@subscriptions.command("rm")
def rm(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Remove a subscription, and its own queue with the waiting notifications."""
    with client(url, key, ca_file) as server:
        server.subscription(name)  # raises if there is none, before anybody is asked
        if not yes:
            confirm(f"Remove {name} and its waiting notifications?")
        server.unsubscribe(name)
    report(f"{name} is gone", as_json=as_json, removed=name)


@subscriptions.command("info")
def info(name: Name, url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False) -> None:
    """Show a subscription and how many notifications wait."""
    with client(url, key, ca_file) as server:
        state = to_protocol(server.subscription(name).state)
        queue = to_protocol(server.queue(state.queue).describe())
    if as_json:
        print_json(_as_dict(state, queue))
        return
    waiting, in_flight = _figures(queue)
    rows = [
        ("name", state.name),
        ("filter", _filter(state)),
        ("created", time_of(state.created_ms)),
        *([("ends", f"{_end(state)}, unless its client renews the lease")] if state.is_temporary else []),
        ("goes to", _destination(state)),
        ("waiting", waiting),
        ("in flight", in_flight),
        ("delivered", f"{queue.figures.acknowledged:,}"),
    ]
    if queue.config.dead_letters is not None:
        rows.append(("dead letters", f"{queue.config.dead_letters}, after {queue.config.receives_max} attempts"))
    print_table(("", ""), rows, has_header=False)


def _figures(queue: Described | LavantError) -> tuple[str, str]:
    """Waiting and in-flight counts; empty if the queue was deleted meanwhile."""
    if isinstance(queue, LavantError):
        return "", ""
    return f"{queue.figures.visible + queue.figures.delayed:,}", f"{queue.figures.in_flight:,}"


def _end(state: SubscriptionState) -> str:
    """When a temporary subscription expires."""
    return time_of(state.expires_ms) if state.is_temporary else ""


def _destination(state: SubscriptionState) -> str:
    return f"queue {state.queue}" if state.webhook is None else state.webhook.url


def _filter(state: SubscriptionState) -> str:
    if isinstance(state.filter, str):
        return state.filter
    return f"encrypted, {state.filter.dimensions - 1} attributes"


def _as_dict(state: SubscriptionState, queue: Described | LavantError | None) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415

    figures = None if queue is None or isinstance(queue, LavantError) else msgspec.structs.asdict(queue.figures)
    webhook = None
    if state.webhook is not None:  # without its secret
        webhook = {"url": state.webhook.url, "attempts_max": state.webhook.attempts_max}
        webhook["timeout_ms"] = state.webhook.timeout_ms
    return {
        "name": state.name,
        "filter": state.filter if isinstance(state.filter, str) else None,
        "is_encrypted": not isinstance(state.filter, str),
        "queue": state.queue,
        "webhook": webhook,
        "created_ms": state.created_ms,
        **({"lease_ms": state.lease_ms, "expires_ms": state.expires_ms} if state.is_temporary else {}),
        **({} if figures is None else {"figures": figures}),
    }
