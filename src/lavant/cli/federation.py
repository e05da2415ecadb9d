"""`lavant federation ls | tree | links | trace | move | evacuate | balance | rm | demo`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from lavant.cli.balance import BALANCING, balance
from lavant.cli.common import (
    EXIT_FAILED,
    AsJson,
    CaFile,
    Key,
    Url,
    ask_http,
    client,
    confirm,
    counted,
    narrator,
    note,
    print_json,
    print_table,
    report,
)
from lavant.core.addresses import QUEUES_URL
from lavant.core.errors import InvalidValue, LavantError

federation = typer.Typer(help="Show and change a federation of brokers.", no_args_is_help=True)
federation.add_typer(balance, name="balance")

TRACE_S_MAX = 15.0
MOVE_S_MAX = 660.0
"""A move may take ten minutes, and is undone or complete then."""
SENT_S_MAX = 10.0
IDS_SHOWN = 10


@federation.command("ls")
def ls(url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False) -> None:
    """List the brokers that this one knows, with the path to each."""
    view = _view(url, key, ca_file)
    if as_json:
        print_json(view["members"])
        return
    rows = [
        (
            each["name"],
            each["role"],
            each["cluster"],
            str(len(each["path"]) - 1),
            " → ".join(each["path"]),
            str(each["epoch"]),
            each["identity"],
        )
        for each in view["members"]
    ]
    columns = ("broker", "role", "cluster", "hops", "path", "starts", "identity")
    print_table(columns, rows, numbers=("hops", "starts"))


@federation.command()
def tree(url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False) -> None:
    """Draw the federation as a tree, with this broker as its root."""
    view = _view(url, key, ca_file)
    states = {link["neighbour"]: link["state"] for link in view["links"]}
    root = _branches(view["members"])
    if as_json:
        print_json(root)
    else:
        print(f"{root['name']}{_role(root)}")
        _draw(root["behind"], "", states)


@federation.command()
def links(url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False) -> None:
    """Show the links of this broker. Exit code 1 if one of them is not up."""
    view = _view(url, key, ca_file)
    shown = {each["neighbour"] for each in view["links"]}
    missing = [each for each in view["joins"] if each["fault"] is not None and each["neighbour"] not in shown]
    if as_json:
        print_json({"links": view["links"], "joins": view["joins"]})
    else:
        _print_links(view["links"])
        for each in view["links"]:
            if each["fault"] is not None:
                print(f"{each['neighbour']}: {each['fault']}")
        for each in missing:
            print(f"{each['address']}: {each['fault']}")
    is_whole = not missing and all(each["state"] == "up" for each in view["links"])
    raise typer.Exit(0 if is_whole else EXIT_FAILED)


@federation.command()
def trace(
    publication: Annotated[str, typer.Argument(help='attributes as JSON: {"symbol": "IBM", "price": 121.5}')],
    namespace: Annotated[str, typer.Option(help="namespace of the publication")] = "",
    send: Annotated[
        bool, typer.Option("--send", help="publish it, marked by its id, and show when it crossed each link")
    ] = False,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show broker by broker where a publication would go, and why, without publishing it unless you say --send.

    Exit code 1 if no subscription would get it, or a broker on the way did not answer.
    """
    attributes = _attributes(publication)
    if send:
        url = _entrance(url, key, ca_file)
        attributes = _publish_marked(attributes, namespace, url, key, ca_file)
    deadline_s = time.monotonic() + SENT_S_MAX
    while True:
        body = {"publication": attributes, "namespace": namespace}
        answer = ask_http(url, "/federation/trace", key, ca_file, method="POST", body=body, timeout_s=TRACE_S_MAX)
        hops = answer["hops"]
        if not send or all(map(_is_confirmed, hops)) or time.monotonic() > deadline_s:
            break
        time.sleep(0.05)
    if as_json:
        print_json(answer)
    else:
        for hop in hops:
            _print_hop(hop)
    is_delivered = any(hop["subscriptions"] for hop in hops) and all(hop["fault"] is None for hop in hops)
    is_delivered = is_delivered and not (send and not all(map(_is_confirmed, hops)))
    raise typer.Exit(0 if is_delivered else EXIT_FAILED)


@federation.command()
def move(
    subscription: Annotated[str, typer.Argument(help="name of the subscription")],
    broker: Annotated[str, typer.Argument(help="name of the broker to which it moves")],
    namespace: Annotated[str, typer.Option(help="namespace of the subscription")] = "",
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Move a subscription with its queue to another broker, and wait until that delivers.

    Ask the broker where the subscription is. Messages in flight stay until they are acknowledged, or follow.
    """
    moved = _move(url, key, ca_file, subscription, broker, namespace)
    text = f"{subscription} is at {broker} ({moved['address']}); paused for {moved['pause_ms']} ms"
    report(text, as_json=as_json, **moved)


@federation.command()
def evacuate(
    broker: Annotated[str, typer.Argument(help="name of the broker that is to be emptied")],
    to: Annotated[
        list[str] | None, typer.Option(help="broker that takes subscriptions; repeatable, default all")
    ] = None,
    rate: Annotated[float, typer.Option(min=0.1, help="subscriptions a second, at most")] = 50.0,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Move all subscriptions of a broker to others, for maintenance. Ctrl-C stops it; run it again to go on.

    Exit code 1 if some stay.
    """
    from lavant.cli.reports.evacuation import Evacuation  # noqa: PLC0415

    view = _view(url, key, ca_file)
    addresses = {each["name"]: each["address"] for each in view["members"]}
    addresses[view["name"]] = url
    if broker not in addresses:
        raise InvalidValue(f"there is no broker {broker!r} in the federation; there are {', '.join(addresses)}")
    heads = {each["name"] for each in view["members"] if each["role"] == "head"}
    others = [name for name in addresses if name != broker]
    targets = ([name for name in others if name not in heads] or others) if to is None else to
    unknown = [name for name in targets if name not in addresses or name == broker]
    if unknown or not targets:
        raise InvalidValue(
            f"--to {', '.join(unknown)}: the other brokers are {', '.join(others) if others else 'none'}"
        )
    if not addresses[broker]:
        raise InvalidValue(f"{broker!r} does not tell its address; give its own --url")

    def ask(path: str, body: dict[str, Any] | None = None) -> Any:
        method = "GET" if body is None else "POST"
        return ask_http(addresses[broker], path, key, ca_file, method=method, body=body, timeout_s=MOVE_S_MAX)

    if _balances(ask):
        note(f"{broker} takes part in balancing, so others may move subscriptions to it again; turn that off first:")
        note(f"  lavant federation balance off --broker {broker}")
    result = Evacuation(ask, targets, rate).run()
    if as_json:
        print_json(result)
    else:
        for name, reason in result["failed"].items():
            print(f"{name}: {reason}")
        report(f"{counted(result['moved'], 'subscription')} moved from {broker}, {result['left']} left", as_json=False)
        if result["is_stopped"]:
            report("stopped; run the same command again to go on", as_json=False)
    raise typer.Exit(0 if not result["left"] else EXIT_FAILED)


@federation.command("rm")
def rm(
    neighbour: Annotated[str, typer.Argument(help="name of the neighbour")],
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Remove a neighbour for good, with its routes and the publications that wait for it.

    It cannot join again by itself; to take it back, start this broker with --join to it.
    """
    links = ask_http(url, "/federation", key, ca_file)["links"]
    waiting = {link["neighbour"]: link["waiting"] for link in links}
    if not yes and neighbour in waiting:  # otherwise the broker says which neighbours it has
        waits = counted(waiting[neighbour], "publication")
        confirm(f"Remove {neighbour}, with {waits} waiting for it?")
    removed = ask_http(url, f"/federation/neighbours/{neighbour}", key, ca_file, method="DELETE")
    waited = counted(removed["publications"], "publication")
    lines = [f"{neighbour} is removed, with {waited} ({removed['bytes']:,} bytes) that waited for it"]
    lines += [f"  {id}" for id in removed["ids"][:IDS_SHOWN]]
    if removed["publications"] > IDS_SHOWN:
        lines.append(f"  and {removed['publications'] - IDS_SHOWN:,} more")
    report("\n".join(lines), as_json=as_json, **removed)


@federation.command()
def demo(
    brokers: Annotated[
        int | None, typer.Option(min=3, max=5, help="brokers, in a chain; 3 by default, 5 with --balance")
    ] = None,
    publications: Annotated[int, typer.Option(min=10, help="publications at each end of the chain")] = 2000,
    balance: Annotated[
        bool, typer.Option("--balance", help="instead, put all subscribers at the weakest broker, and let them move")
    ] = False,
    subscribers: Annotated[int, typer.Option(min=10, max=500, help="subscribers, with --balance")] = 100,
    clusters: Annotated[
        int, typer.Option(min=1, max=2, help="clusters, each with a head, with --balance; the weak brokers are in one")
    ] = 1,
    picture: Annotated[
        Path | None, typer.Option(help="SVG file of subscriptions and load over time, with --balance")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a chain of brokers as processes, kill one while publications pass, and check every delivery.

    With --balance: brokers of different strength around one where publications enter; ends when they are balanced.
    """
    if picture is not None and not balance:
        raise InvalidValue(f"--picture {picture} needs --balance: the chain has no picture")
    if clusters > 1 and not balance:
        raise InvalidValue(f"--clusters {clusters} needs --balance: the chain is one cluster")
    console = narrator(as_json=as_json)
    if balance:
        import msgspec  # noqa: PLC0415

        from lavant.cli.reports.demonstration.balancing import run_balancing  # noqa: PLC0415

        count = 5 if brokers is None else brokers
        balanced = run_balancing(
            console, brokers=count, subscribers=subscribers, clusters=clusters, picture_path=picture
        )
        if as_json:
            print_json(msgspec.to_builtins(balanced))
        return
    from lavant.cli.reports.demonstration.federation import run_federation  # noqa: PLC0415

    delivered = run_federation(console, brokers=3 if brokers is None else brokers, publications=publications)
    if as_json:
        print_json(delivered)


def _balances(ask: Callable[[str], Any]) -> bool:
    """Whether a broker takes part in balancing; one of another version may not say."""
    try:
        return bool(ask(BALANCING)["is_on"])
    except LavantError:
        return False


def _view(url: str, key: str, ca_file: Path | None) -> dict[str, Any]:
    return ask_http(url, "/federation", key, ca_file)


def _entrance(url: str, key: str, ca_file: Path | None) -> str:
    """Where publications of clients of a broker enter: at an edge, the nearest head with which it has a link."""
    view = _view(url, key, ca_file)
    up = {link["neighbour"] for link in view["links"] if link["state"] == "up"}
    own, *others = view["members"]
    heads = (each for each in others if each["role"] == "head" and each["address"] and each["path"][1] in up)
    head = next(heads, None) if own["role"] == "edge" else None
    return url if head is None else str(head["address"])


def _move(url: str, key: str, ca_file: Path | None, subscription: str, broker: str, namespace: str) -> dict[str, Any]:
    body = {"subscription": subscription, "broker": broker, "namespace": namespace}
    return ask_http(url, "/federation/moves", key, ca_file, method="POST", body=body, timeout_s=MOVE_S_MAX)


def _attributes(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidValue(f"a publication is a JSON object, got {text[:60]!r}: {error}") from None
    if not isinstance(value, dict):
        raise InvalidValue(f"a publication is a JSON object, got {text[:60]!r}")
    return value


def _publish_marked(
    attributes: dict[str, Any], namespace: str, url: str, key: str, ca_file: Path | None
) -> dict[str, Any]:
    from lavant.core.identities import new_identity  # noqa: PLC0415
    from lavant.core.ids import PublicationId  # noqa: PLC0415
    from lavant.core.publications.publication import Publication  # noqa: PLC0415

    if namespace:
        raise InvalidValue("--send publishes in the namespace of your key; leave out --namespace, or --send")
    id = PublicationId(f"lavant-trace-{new_identity()}")
    with client(url, key, ca_file) as server:
        server.publish(Publication(attributes=attributes, id=id))
    return {**attributes, "@id": id}


def _is_confirmed(hop: dict[str, Any]) -> bool:
    """Whether each neighbour that should get a marked publication has it."""
    confirmed = {event["neighbour"] for event in hop["events"] if event["what"] == "confirmed"}
    return all(link["neighbour"] in confirmed for link in hop["links"] if link["is_forwarded"])


def _branches(members: list[dict[str, Any]]) -> dict[str, Any]:
    """The brokers as a tree: each is behind the last but one of its path."""
    nodes = {
        tuple(each["path"]): {**{key: each[key] for key in ("name", "identity", "role")}, "behind": []}
        for each in members
    }
    for path, node in nodes.items():
        parent = nodes.get(path[:-1])
        if parent is not None:
            parent["behind"].append(node)
    return next(iter(nodes.values()))


def _role(node: dict[str, Any]) -> str:
    return "" if node["role"] == "any" else f", {node['role']}"


def _draw(behind: list[dict[str, Any]], margin: str, states: dict[str, str]) -> None:
    for node in behind:
        is_last = node is behind[-1]
        state = states.get(node["name"], "up") if not margin else "up"
        branch, note = "└── " if is_last else "├── ", "" if state == "up" else f" ({state})"
        print(f"{margin}{branch}{node['name']}{_role(node)}{note}")
        _draw(node["behind"], margin + ("    " if is_last else "│   "), states)


def _print_links(links: list[dict[str, Any]]) -> None:
    columns = ("neighbour", "state", "waiting", "oldest", "out", "in", "held", "told", "covered", "rtt")
    rows = [
        (
            each["neighbour"],
            each["state"],
            f"{each['waiting']:,}",
            f"{each['oldest_s']:.1f} s" if each["waiting"] else "",
            f"{each['forwarded']:,}",
            f"{each['received']:,}",
            f"{each['subscriptions']:,}",
            f"{each['told']:,}",
            f"{each['covered']:,}",
            "" if each["rtt_ms"] is None else f"{each['rtt_ms']} ms",
        )
        for each in links
    ]
    print_table(columns, rows, numbers=columns[2:])


def _print_hop(hop: dict[str, Any]) -> None:
    margin = "  " * len(hop["path"])
    print(f"{margin}{hop['broker']}")
    if hop["fault"] is not None:
        print(f"{margin}  {hop['fault']}")
        return
    names = ", ".join(hop["subscriptions"])
    print(f"{margin}  {f'delivered to {names}' if names else 'no subscription here matches'}")
    for link in hop["links"]:
        arrow = "→" if link["is_forwarded"] else "✗"
        print(f"{margin}  {arrow} {link['neighbour']}: {link['reason']}")
        times_ms = {
            event["what"]: event["time_ms"] for event in hop["events"] if event["neighbour"] == link["neighbour"]
        }
        if "confirmed" in times_ms:
            print(f"{margin}    sent, and durable there {times_ms['confirmed'] - times_ms['sent']} ms later")
        elif times_ms:
            print(f"{margin}    sent, and not confirmed yet")
