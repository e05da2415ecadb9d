"""The configuration file of `lavant serve`: TOML with the names of the options.

    port = 7324
    data = "/var/lib/lavant"
    keys-file = "/etc/lavant/keys.toml"

    [limits]
    connections_max = 500

Precedence: command line, environment, file, default. In the environment, `--log-level` is `LAVANT_LOG_LEVEL`; blanks
separate the values of an option that can be repeated.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from lavant.core.errors import InvalidValue

if TYPE_CHECKING:
    from lavant.service.runtime.limits import ServiceLimits

LIMITS = "limits"
NO_SETTINGS = ("config", "as_json", "quiet")
"""Options of `lavant serve` that are not part of its configuration."""
FILE_BYTES_MAX = 1 << 20
_KEY = "lavant.limits"
_PORT = "LAVANT_PORT"


def read_config(path: Path) -> dict[str, Any]:
    """The tables of the file, with `-` in names replaced by `_`."""
    try:
        data = path.read_bytes()[: FILE_BYTES_MAX + 1]
    except OSError as error:
        raise InvalidValue(f"cannot read the configuration {path}: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise InvalidValue(f"the configuration {path} has more than {FILE_BYTES_MAX} bytes; is it the right file?")
    try:
        tables = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidValue(f"the configuration {path} is not valid TOML: {error}") from None
    return {name.replace("-", "_"): value for name, value in tables.items()}


def take_config(context: typer.Context, path: Path | None) -> Path | None:
    """Callback of `--config`: the values of the file become the defaults of the options."""
    if os.environ.get(_PORT, "").startswith("tcp://"):
        del os.environ[_PORT]  # Kubernetes sets it in the pods beside a service named lavant
    if path is None:
        return None
    options = read_config(path)
    context.meta[_KEY] = limits_of(options.pop(LIMITS, {}), path)
    known = sorted(name for parameter in context.command.params if (name := parameter.name) and name not in NO_SETTINGS)
    for name in options:
        if name not in known:
            raise InvalidValue(f"{path} sets {name!r}, which is not an option{_meant(name, known)}")
    repeated = {parameter.name for parameter in context.command.params if getattr(parameter, "multiple", False)}
    listed = {name: [options[name]] for name in repeated & options.keys() if isinstance(options[name], str)}
    context.default_map = {**(context.default_map or {}), **options, **listed}
    return path


def limits_in(context: typer.Context) -> ServiceLimits | None:
    """The limits in the file, if there is one."""
    found: ServiceLimits | None = context.meta.get(_KEY)
    return found


def limits_of(table: object, path: Path) -> ServiceLimits:
    from lavant.service.runtime.limits import ServiceLimits  # noqa: PLC0415

    if not isinstance(table, dict):
        raise InvalidValue(f"{path} sets limits to {table!r}; write them below a line [limits]")
    known = list(ServiceLimits.__struct_fields__)
    for name in table:
        if name not in known:
            raise InvalidValue(f"{path} sets limits.{name}, which is not a limit{_meant(name, known)}")
    try:
        limits = msgspec.convert(table, ServiceLimits)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"{path}, limits: {error}") from None
    for name, value in msgspec.structs.asdict(limits).items():
        if not value > 0:
            raise InvalidValue(f"{path} sets limits.{name} to {value}; it must be positive")
    return limits


def _meant(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"
