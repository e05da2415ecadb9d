"""`lavant config …`: show and check the configuration of `lavant serve`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lavant.cli.common import AsJson, print_table, report
from lavant.core.errors import InvalidValue

config = typer.Typer(help="Show and check the configuration of `lavant serve`.", no_args_is_help=True)

_SECRET = ("metrics_key", "join_key")
_SOURCES = {"DEFAULT": "default", "DEFAULT_MAP": "file", "ENVIRONMENT": "environment", "COMMANDLINE": "command line"}


@config.command()
def show(
    file: Annotated[Path | None, typer.Argument(help="configuration file, as for `lavant serve --config`")] = None,
    as_json: AsJson = False,
) -> None:
    """Print every option and limit with its value and source."""
    rows = effective(file)
    if as_json:
        print(json.dumps([{"option": name, "value": value, "from": source} for name, value, source in rows]))
    else:
        print_table(
            ("option", "value", "from"),
            [(name, "" if value is None else str(value), source) for name, value, source in rows],
        )


@config.command()
def check(file: Annotated[Path, typer.Argument(help="configuration file")], as_json: AsJson = False) -> None:
    """Check a configuration file. Exit code 2, with a message, if it is invalid."""
    rows = effective(file, is_checked=True)
    given = sum(1 for _, _, source in rows if source == "file")
    report(f"{file}: {given} settings, all valid", as_json=as_json, file=str(file), is_valid=True, settings=given)


def effective(file: Path | None, *, is_checked: bool = False) -> list[tuple[str, Any, str]]:
    """Name, value and source of every setting of `lavant serve`; if checked, raises if it would refuse to start."""
    import msgspec  # noqa: PLC0415

    from lavant.cli import commands  # noqa: PLC0415
    from lavant.cli.server.config_file import LIMITS, NO_SETTINGS, limits_in, read_config  # noqa: PLC0415
    from lavant.cli.server.serve import settings_of  # noqa: PLC0415
    from lavant.service.runtime.limits import ServiceLimits  # noqa: PLC0415

    command = typer.main.get_command(commands).commands["serve"]  # type: ignore[attr-defined]
    arguments = [] if file is None else ["--config", str(file)]
    try:
        context = command.make_context("serve", arguments)
    except typer.BadParameter as error:
        where = "" if error.param is None else f"{error.param.name}: "
        raise InvalidValue(f"{file}: {where}{error.message}") from None
    values = {name: value for name, value in context.params.items() if name not in NO_SETTINGS}
    limits = limits_in(context)
    if is_checked:
        settings_of(values, limits)
    rows = [
        (
            name,
            "(hidden)" if name in _SECRET and value else _printable(value),
            _SOURCES[context.get_parameter_source(name).name],
        )
        for name, value in sorted(values.items())
    ]
    set_limits = {} if file is None else read_config(file).get(LIMITS, {})
    for name, value in msgspec.structs.asdict(ServiceLimits() if limits is None else limits).items():
        rows.append((f"{LIMITS}.{name}", value, "file" if name in set_limits else "default"))
    return rows


def _printable(value: Any) -> Any:
    from lavant.broker.protocol.amqp_messages import is_amqp, redacted  # noqa: PLC0415

    if isinstance(value, str) and is_amqp(value):
        return redacted(value)
    return str(value) if isinstance(value, Path) else value
