"""The table of all commands, by section of `lavant --help`. The module of a command is imported when it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum, EnumType
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer._coercion import build_runtime_param
from typer.core import TyperGroup, _TyperParameter

HELP_OPTIONS = ["-h", "--help"]


class CommandEntry(NamedTuple):
    """A command or a group of commands: the object of its name in its module."""

    name: str
    module: str
    """Below `lavant.cli`."""
    summary: str
    variables: str | None = None
    """The prefix of environment variables that set its options."""


SECTIONS = {
    "Publish and subscribe": (
        CommandEntry("pub", "messaging.pub", "publish one publication, or those of a file or standard input"),
        CommandEntry("sub", "messaging.sub", "subscribe, and print notifications"),
        CommandEntry("subscriptions", "messaging.subscriptions", "list, add, show, change and remove subscriptions"),
        CommandEntry("queue", "messaging.queue", "inspect, use and plan queues"),
        CommandEntry("explain", "explain", "explain why a publication matches a filter or not"),
        CommandEntry("keygen", "encrypt", "generate a key for encrypted filters"),
        CommandEntry("encrypt", "encrypt", "encrypt files of subscriptions or publications"),
    ),
    "Jobs and workers": (
        CommandEntry("job", "jobs.job", "define job types; submit, show and cancel jobs"),
        CommandEntry("workflow", "jobs.workflow", "check definitions of job types"),
        CommandEntry("worker", "jobs.worker", "run tasks"),
        CommandEntry("schedule", "jobs.schedule", "submit jobs or send messages by cron or at an interval"),
        CommandEntry("resources", "jobs.resources", "show the consumers of each topic, rates and decisions"),
    ),
    "Servers": (
        CommandEntry("serve", "server.serve", "run a server", "LAVANT"),
        CommandEntry("config", "server.config", "show and check the configuration of a server"),
        CommandEntry("keys", "server.keys", "create and list API keys"),
        CommandEntry("federation", "federation", "show and change a federation of brokers"),
        CommandEntry("top", "server.top", "show a server's requests, connections and queues live"),
        CommandEntry("doctor", "server.doctor", "check this machine and a server"),
        CommandEntry("check", "server.check", "verify a data directory"),
        CommandEntry("backup", "server.backup", "back up a server, or a data directory"),
        CommandEntry("restore", "server.backup", "restore a backup into a new data directory"),
        CommandEntry("warm-up", "server.warm_up", "compile all kernels ahead of the first start"),
        CommandEntry("bench", "bench", "run quick benchmarks"),
    ),
    "Spark": (
        CommandEntry("stream", "stream", "match publications against subscriptions on Spark"),
        CommandEntry("reslice", "reslice", "divide stored subscriptions among another number of slices"),
        CommandEntry("sweep", "planning.sweep", "run a function for every scenario of a grid"),
        CommandEntry("spark", "spark", "check a cluster, ship Lavant to it, size it"),
        CommandEntry("demo", "demo", "run the demonstration"),
    ),
    "Models and simulations": (
        CommandEntry("plan", "planning.plan", "compute the consumers that each topic needs"),
        CommandEntry("model", "planning.model", "fit models to telemetry"),
        CommandEntry("petri", "planning.petri", "draw, simulate, check and export coloured Petri nets"),
        CommandEntry("sim", "planning.sim", "simulate whole systems in virtual time, with faults"),
        CommandEntry("reproduce", "planning.reproduce", "run the experiments of the papers again"),
    ),
}
_ENTRIES = {entry.name: entry for entries in SECTIONS.values() for entry in entries}


class CommandTable(TyperGroup):
    """The root of the command line. Prints its help from the table, without importing the commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = _LoadedCommands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_ENTRIES)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for section, entries in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(entry.name, entry.summary) for entry in entries])


class _LoadedCommands(Mapping[str, Any]):
    """Every command by its name; loads what is looked up."""

    def __getitem__(self, name: str) -> Any:
        return _load(_ENTRIES[name])

    def __iter__(self) -> Iterator[str]:
        return iter(_ENTRIES)

    def __len__(self) -> int:
        return len(_ENTRIES)


@cache
def _load(entry: CommandEntry) -> Any:
    found = getattr(import_module(f"lavant.cli.{entry.module}"), entry.name.replace("-", "_"))
    holder = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=entry.name)
    else:
        settings = None if entry.variables is None else {"auto_envvar_prefix": entry.variables}
        holder.command(entry.name, context_settings=settings)(found)
    prepare(holder)
    command = typer.main.get_group(holder).commands[entry.name]
    _set_help_options(command)
    return command


def _set_help_options(command: Any) -> None:
    command.context_settings["help_option_names"] = HELP_OPTIONS
    for below in getattr(command, "commands", {}).values():
        _set_help_options(below)


class _Plain:
    """Reads texts, paths, flags, numbers, names of enumerations, defaults and missing values, and leaves the rest to
    Typer.

    Typer would read them with pydantic, whose import takes longer than all the rest of a command, and whose messages do
    not show the value.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        annotation = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if value is param.default or (annotation in (str, bool) and isinstance(value, annotation)):
            return value
        if annotation is Path and isinstance(value, str):
            return Path(value)
        if annotation == list[str] and isinstance(value, list | tuple):
            return list(value)
        if annotation in (int, float) or isinstance(annotation, EnumType):
            wanted = _wanted(annotation, param.type_descriptor.parameter_info)
            with suppress(ValueError, TypeError):
                read = annotation(value)
                is_exact = isinstance(value, str) or (read == value and not isinstance(value, bool))
                if is_exact and (isinstance(read, Enum) or _is_in_range(read, param.type_descriptor.parameter_info)):
                    return read
            raise typer.BadParameter(f"it must be {wanted}, got {value!r:.60}", ctx=ctx, param=param)
        return build_runtime_param(param.type_descriptor).coerce(value, param=param, ctx=ctx)


def _is_in_range(number: float, bounds: Any) -> bool:
    """Whether it is a number within the bounds of its option; not a number is in none."""
    return (bounds.min is None or number >= bounds.min) and (bounds.max is None or number <= bounds.max)


def _wanted(annotation: Any, bounds: Any) -> str:
    """What a value must be, in words."""
    if isinstance(annotation, EnumType):
        members: list[Enum] = list(annotation)
        *others, last = [repr(each.value) for each in members]
        return f"{', '.join(others)} or {last}" if others else last
    kind = "a whole number" if annotation is int else "a number"
    if bounds.min is not None and bounds.max is not None:
        return f"{kind} from {bounds.min} to {bounds.max}"
    if bounds.min is not None:
        return f"{kind}, at least {bounds.min}"
    return kind if bounds.max is None else f"{kind}, at most {bounds.max}"


_PLAIN = _Plain()
_TyperParameter.get_runtime_param = lambda self: _PLAIN  # type: ignore[assignment, method-assign, return-value]


def prepare(commands: typer.Typer) -> None:
    """Adds to all commands and groups what is common to them."""
    for command in commands.registered_commands:
        assert command.callback is not None
        command.callback = _prepared(command.callback)
    for group in commands.registered_groups:
        assert group.typer_instance is not None
        prepare(group.typer_instance)


def _prepared(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with the option --quiet, which refuses URIs such as hdfs:// in its `Path` parameters."""

    @wraps(command)
    def run(quiet: bool = False, **given: Any) -> Any:
        from lavant.cli import common  # noqa: PLC0415
        from lavant.core.files import local_path  # noqa: PLC0415

        common.set_quiet(quiet)
        taken = {name: local_path(value) if isinstance(value, Path) else value for name, value in given.items()}
        return command(**taken)

    signature = inspect.signature(command, eval_str=True)
    option = typer.Option("--quiet", "-q", help="print results and errors only", envvar="LAVANT_QUIET")
    quiet = inspect.Parameter(
        "quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option]
    )
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), quiet])  # type: ignore[attr-defined]
    return run
