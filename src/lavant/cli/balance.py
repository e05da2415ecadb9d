"""`lavant federation balance on | off | status | why`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from lavant.cli.common import EXIT_FAILED, AsJson, CaFile, Key, Url, ask_http, counted, print_json, print_table, report
from lavant.core.addresses import QUEUES_URL
from lavant.core.errors import InvalidValue, LavantError

balance = typer.Typer(help="Move subscriptions to brokers with less load.", no_args_is_help=True)

BALANCING = "/federation/balancing"
Brokers = Annotated[
    list[str] | None, typer.Option("--broker", help="only this broker; repeatable, default all of the federation")
]


@balance.command("on")
def on(
    brokers: Brokers = None, url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False
) -> None:
    """Let brokers balance, until they restart; `lavant serve --balance` does it from the start.

    Exit code 1 if one of them does not answer.
    """
    _switch(True, brokers, url, key, ca_file, as_json)


@balance.command("off")
def off(
    brokers: Brokers = None, url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False
) -> None:
    """Stop balancing, until brokers restart. Moves that have begun end; no others begin.

    Exit code 1 if one of the brokers does not answer.
    """
    _switch(False, brokers, url, key, ca_file, as_json)


@balance.command()
def status(url: Url = QUEUES_URL, key: Key = "", ca_file: CaFile = None, as_json: AsJson = False) -> None:
    """Show the load of this broker, and of the others as they last reported it."""
    view = ask_http(url, BALANCING, key, ca_file)
    if as_json:
        print_json({name: value for name, value in view.items() if name != "decisions"})
        return
    own = {"broker": view["name"], "status": view["status"] if view["is_on"] else "off", "load": view["load"]}
    columns = ("broker", "status", "subscriptions", "input", "output", "matching delay", "in", "out")
    print_table(columns, [_row(each) for each in (own, *view["peers"])], numbers=columns[2:])
    if view["fault"] is not None:
        print(view["fault"])
    if view["balances_with"] is not None:
        print(f"cluster {view['cluster']} balances with cluster {view['balances_with']}")
    sessions, moved = counted(view["sessions"], "session"), counted(view["moved"], "subscription")
    print(f"policy {view['policy']}; {sessions} of {view['name']} moved {moved} away, {view['failed']} stayed")
    if view["pause_ms_p99"] is not None:
        print(f"while it moved, a subscription got nothing for {view['pause_ms_p99']:.0f} ms (p99)")


@balance.command()
def why(
    last: Annotated[int, typer.Option("-n", "--last", min=1, help="decisions to show")] = 1,
    url: Url = QUEUES_URL,
    key: Key = "",
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the last decisions of this broker: why, what moved, and the loads before, as predicted and as measured."""
    view = ask_http(url, BALANCING, key, ca_file)
    decisions = view["decisions"][:last]
    if as_json:
        print_json(decisions)
    elif not decisions:
        print(f"{view['name']} has decided nothing yet; balancing is {'on' if view['is_on'] else 'off'}")
    for each in () if as_json else decisions:
        print(f"{each['action']}, because {each['reason']}")
        columns = ("broker", "", "subscriptions", "input", "output", "matching delay")
        print_table(columns, list(_loads(each)), numbers=columns[2:])
        if not each["measured"]:
            print("not settled yet, so nothing is measured")


def _switch(is_on: bool, names: list[str] | None, url: str, key: str, ca_file: Path | None, as_json: bool) -> None:
    view = ask_http(url, "/federation", key, ca_file)
    addresses = {each["name"]: each["address"] for each in view["members"]}
    addresses[view["name"]] = url
    unknown = [] if names is None else [name for name in names if name not in addresses]
    if unknown:
        known = ", ".join(addresses)
        raise InvalidValue(f"--broker {', '.join(unknown)}: there is no such broker; there are {known}")
    result = {name: _switched(is_on, addresses[name], key, ca_file) for name in (addresses if names is None else names)}
    if as_json:
        print_json(
            {name: {"is_on": is_on if fault is None else None, "fault": fault} for name, fault in result.items()}
        )
    else:
        for name, fault in result.items():
            if fault is None:
                report(f"{name}: {'on' if is_on else 'off'}", as_json=False)
            else:
                print(f"{name}: {fault}")
    raise typer.Exit(EXIT_FAILED if any(result.values()) else 0)


def _switched(is_on: bool, address: str, key: str, ca_file: Path | None) -> str | None:
    """Why it was not, if so."""
    if not address:
        return "it does not tell its address; ask it by its own --url"
    try:
        ask_http(address, BALANCING, key, ca_file, method="PUT", body={"is_on": is_on})
    except LavantError as error:
        return str(error)
    return None


def _row(broker: dict[str, Any]) -> tuple[str, ...]:
    load = broker["load"]
    rates = f"{load['input_rate_per_s']:,.0f}/s", f"{load['output_bytes_per_s'] / 1000:,.1f} kB/s"
    return (broker["broker"], broker["status"], *_indices(load), *rates)


def _indices(load: dict[str, Any]) -> tuple[str, ...]:
    ratios = f"{load['input']:.2f}", f"{load['output']:.2f}"
    return f"{load['subscriptions']:,}", *ratios, f"{load['matching_delay_s'] * 1000:.2f} ms"


def _loads(decision: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    for broker in decision["before"]:
        for when in ("before", "predicted", "measured"):
            if broker in decision[when]:
                yield (broker if when == "before" else "", when, *_indices(decision[when][broker]))
