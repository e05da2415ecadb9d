"""`lavant petri`: draw, simulate, check and export coloured Petri nets."""

from __future__ import annotations

import inspect
import math
import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lavant.cli.common import AsJson, counted, note, print_json, print_table, report
from lavant.core.errors import InvalidValue, LavantError

if TYPE_CHECKING:
    from lavant.models.petri.hierarchy import FlatNet
    from lavant.models.petri.monitors import Monitor
    from lavant.models.petri.net import Net
    from lavant.models.petri.state_space import Invariant, PathProperty, StateSpace, TraceStep

EXIT_VIOLATED = 1
TRACE_MAX = 40
"""Steps of a trace that are printed."""

petri = typer.Typer(help="Draw, simulate, check and export coloured Petri nets.", no_args_is_help=True)

NetName = Annotated[
    str, typer.Argument(metavar="NET", help="`reliable-queue`, or a Python file whose function `net` returns a net")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="set a parameter of the net; repeatable")
]
Seed = Annotated[int, typer.Option(min=0, help="seed of the random numbers")]


@petri.command()
def show(
    net: NetName,
    set_: Settings = None,
    out: Annotated[Path | None, typer.Option(help="directory for the pages, as SVG")] = None,
    steps: Annotated[int, typer.Option(min=0, help="show the marking after so many steps")] = 0,
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """List the pages of a net, its parameters and its marking, or draw the pages."""
    import numpy as np  # noqa: PLC0415

    from lavant.cli.reports.charts import write_picture  # noqa: PLC0415
    from lavant.models.petri.drawing import draw  # noqa: PLC0415
    from lavant.models.petri.simulation import Simulation  # noqa: PLC0415

    model = _load(net, set_)
    flat = model.net.flatten()
    run = Simulation(flat, np.random.default_rng(seed))
    if steps:
        run.run(steps=steps)
    marking = _marking(run)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidValue(f"cannot create {out}: {error.strerror}") from None
        files = []
        for instance, local in _by_instance(flat, marking).items():
            page, _, number = instance.rstrip(")").partition("(")
            if steps or not number:  # without tokens, all instances of a page look the same
                files.append(str(out / f"{page}{'-' if number else ''}{number}.svg"))
                write_picture(Path(files[-1]), draw(model.net, page, local if steps else None).svg)
        report("\n".join(files), as_json=as_json, files=files)
        return
    if as_json:
        pages = {
            each.name: {"places": list(each.places), "transitions": list(each.transitions)}
            for each in model.net.pages.values()
        }
        shown = {name: str(tokens) for name, tokens in marking.items() if tokens}
        print_json({"net": model.net.name, "parameters": _texts(model.parameters), "pages": pages, "marking": shown})
        return
    print(f"{model.net.name}: {counted(len(flat.places), 'place')}, {counted(len(flat.transitions), 'transition')}")
    for name, value in model.parameters.items():
        print(f"  {name} = {value}")
    for each in model.net.pages.values():
        stands = "".join(f", {name} stands for {below.page}" for name, below in each.substitutions.items())
        inside = f"{counted(len(each.places), 'place')}, transitions: {', '.join(each.transitions) or 'none'}"
        print(f"page {each.name}: {inside}{stands}")
    print(f"marking at {run.now:g} s:")
    for name, tokens in marking.items():
        if tokens:
            print(f"  {name}: {tokens}")


@petri.command("run")
def run_(
    net: NetName,
    set_: Settings = None,
    seconds: Annotated[float, typer.Option(min=0, help="model time of each replication")] = 1000.0,
    warm_up: Annotated[float, typer.Option(min=0, help="model time after which monitors start")] = 50.0,
    replications: Annotated[int, typer.Option(min=2, help="independent runs")] = 20,
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """Simulate a net and print what its monitors measure, with 95 % confidence intervals."""
    import numpy as np  # noqa: PLC0415

    from lavant.models.petri.replications import replicate  # noqa: PLC0415

    model = _load(net, set_)
    if not model.monitors:
        raise InvalidValue(f"{net} has no monitors; let its function `monitors` return some")
    start_s = time.perf_counter()
    found = replicate(
        model.net.flatten(),
        model.monitors,
        np.random.default_rng(seed),
        replications=replications,
        until=seconds,
        warm_up=warm_up,
    )
    took_s = time.perf_counter() - start_s
    if as_json:
        monitors = {
            name: {"mean": _or_none(each.mean), "half_width": _or_none(each.half_width), "p95": each.p95}
            for name, each in found.estimates.items()
        }
        print_json({"monitors": monitors, "steps": found.steps, "seconds": round(took_s, 3)})
        return
    rows = [
        [name, _figure(each.mean), _figure(each.half_width, "± "), _figure(each.p95)]
        for name, each in found.estimates.items()
    ]
    print_table(("monitor", "mean", "95 % interval", "p95"), rows, numbers=("mean", "95 % interval", "p95"))
    if unseen := [name for name, each in found.estimates.items() if math.isnan(each.mean)]:
        print(f"nothing was observed: {', '.join(unseen)}")
    text = f"{counted(found.steps, 'step')} in {took_s:.1f} s, {found.steps / took_s:,.0f} a second"
    note(text)


@petri.command()
def check(
    net: NetName,
    set_: Settings = None,
    states: Annotated[int, typer.Option(min=1, help="stop after so many states")] = 200_000,
    as_json: AsJson = False,
) -> None:
    """Search all states of a small net, without time: bounds, dead transitions and markings, and its properties.

    Exit code 1 if a property is violated, a transition is dead, or a place is unbounded.
    """
    from lavant.models.petri.state_space import TOKENS_MAX, explore  # noqa: PLC0415

    model = _load(net, set_, is_small=True)
    start_s = time.perf_counter()
    space = explore(model.net.flatten(), invariants=model.invariants, histories=model.histories, states_max=states)
    took_s = time.perf_counter() - start_s
    if as_json:
        print_json(_space_as_dict(space))
        raise typer.Exit(EXIT_VIOLATED if space.violations or space.dead_transitions or space.unbounded else 0)
    whole = "all of them"
    if space.overfull is not None:
        whole = f"not all: the search ended where {space.overfull} had gained {TOKENS_MAX:,} tokens"
    elif not space.is_complete:
        whole = f"not all: the search ended at its bound of {counted(states, 'state')}"
    print(f"{counted(space.states, 'state')}, {counted(space.arcs, 'arc')}; {whole}")
    note(f"{space.states / took_s:,.0f} states a second")
    rows = [
        [name, str(bound.least), str(bound.greatest), "" if bound.longest_list is None else str(bound.longest_list)]
        for name, bound in space.bounds.items()
    ]
    print_table(
        ("place", "least", "most tokens", "longest list"), rows, numbers=("least", "most tokens", "longest list")
    )
    print(f"dead markings: {len(space.dead_markings)}")
    if space.is_complete:
        print(f"strongly connected components: {space.components}")
        print(f"home markings: {space.home_markings}")
    if _judge(model, space, states):
        raise typer.Exit(EXIT_VIOLATED)


def _or_none(figure: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(figure) else figure


def _figure(figure: float | None, sign: str = "") -> str:
    return "" if figure is None or math.isnan(figure) else f"{sign}{figure:.5f}"


def _by_instance(flat: FlatNet, marking: dict[str, str]) -> dict[str, dict[str, str]]:
    """The places of each instance of each page, with their tokens."""
    found: dict[str, dict[str, str]] = {}
    for name, at in flat.index.items():
        instance, _, place = name.partition("'")
        found.setdefault(instance, {})[place] = marking[flat.places[at].name]
    return found


def _texts(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, int | float | bool) else str(value) for name, value in parameters.items()}


def _space_as_dict(space: StateSpace) -> dict[str, Any]:
    bounds = {
        name: {"least": each.least, "most_tokens": each.greatest, "longest_list": each.longest_list}
        for name, each in space.bounds.items()
    }
    return {
        "states": space.states,
        "arcs": space.arcs,
        "is_complete": space.is_complete,
        "bounds": bounds,
        "dead_markings": len(space.dead_markings),
        "components": space.components if space.is_complete else None,
        "home_markings": space.home_markings,
        "violated": [each.name for each in space.violations],
        "dead_transitions": list(space.dead_transitions),
        "unbounded": list(space.unbounded),
        "perhaps_unbounded": _growing(space),
    }


def _judge(model: _Loaded, space: StateSpace, states: int) -> bool:
    """Print whether properties hold; whether one does not."""
    within = "" if space.is_complete else f" within {min(states, space.states):,} states"
    violated = {each.name: each for each in space.violations}
    for name in [each.name for each in model.invariants] + [each.name for each in model.histories]:
        print(f"{'VIOLATED' if name in violated else 'holds'}{within}: {name}")
        if name in violated:
            _print_trace(violated[name].trace, model.net)
            for place, tokens in violated[name].marking.items():
                print(f"    {place}: {tokens}")
    for name in space.dead_transitions:
        print(f"dead transition{within}: {name} occurs in no state")
    for name, trace in space.unbounded.items():
        print(f"unbounded place: {name}; the end of this path can be repeated for ever")
        _print_trace(trace, model.net)
    if growing := _growing(space):
        print(f"perhaps unbounded, still growing{within}: {', '.join(growing)}")
    return bool(violated or space.dead_transitions or space.unbounded)


def _growing(space: StateSpace) -> list[str]:
    return [name for name, bound in space.bounds.items() if bound.is_growing and name not in space.unbounded]


def _print_trace(trace: list[TraceStep], net: Net) -> None:
    colours = net.scope.variables
    for number, step in enumerate(trace[:TRACE_MAX], start=1):
        binding = ", ".join(f"{name} = {colours[name].show(value)}" for name, value in step.binding.items())
        print(f"  {number:3}. {step.transition}{'  ' if binding else ''}{binding}")
    if len(trace) > TRACE_MAX:
        print(f"  … {len(trace) - TRACE_MAX} more")


@petri.command()
def export(
    net: NetName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the file to write, NAME.cpn")],
    set_: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Write a net as a file of CPN Tools."""
    from lavant.models.petri.cpn_tools import cpn_file  # noqa: PLC0415

    if file.suffix != ".cpn":
        raise InvalidValue(f"{file} does not end in .cpn, which CPN Tools wants")
    text = cpn_file(_load(net, set_).net)
    try:
        file.write_text(text, encoding="iso-8859-1", errors="xmlcharrefreplace")
    except OSError as error:
        raise InvalidValue(f"cannot write {file}: {error.strerror}") from None
    print_json({"file": str(file)}) if as_json else print(file)


class _Loaded:
    """A net with its parameters, monitors and properties."""

    def __init__(
        self,
        net: Net,
        parameters: dict[str, Any],
        monitors: tuple[Monitor, ...],
        invariants: tuple[Invariant, ...],
        histories: tuple[PathProperty, ...],
    ) -> None:
        self.net, self.parameters, self.monitors = net, parameters, monitors
        self.invariants, self.histories = invariants, histories


def _load(name: str, settings: list[str] | None, *, is_small: bool = False) -> _Loaded:
    from lavant.models.petri.nets import NETS  # noqa: PLC0415

    given = dict(_pair(each) for each in settings or ())
    if name in NETS:
        return _built_in(name, given, is_small)
    if not name.endswith(".py"):
        raise InvalidValue(f"no net {name!r}; there are {', '.join(NETS)}, or give a Python file")
    return _from_file(Path(name), given)


def _built_in(name: str, given: dict[str, str], is_small: bool) -> _Loaded:
    import msgspec  # noqa: PLC0415

    from lavant.models.petri.nets import NETS  # noqa: PLC0415

    model = NETS[name]
    known = model.parameters.__struct_fields__
    for each in given:
        if each not in known:
            raise InvalidValue(f"--set {each}: {name} has no such parameter; it has {', '.join(known)}")
    values = {**(model.small if is_small else {}), **given}
    try:
        parameters = msgspec.convert(values, model.parameters, strict=False)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at `$.")
        name = where.rstrip("`")
        raise InvalidValue(f"--set {name}={given[name]}: {said}" if name in given else f"--set: {said}") from None
    shown = {each: getattr(parameters, each) for each in known}
    return _Loaded(
        model.build(parameters),
        shown,
        model.monitors(parameters),
        model.invariants(parameters),
        model.histories(parameters),
    )


def _from_file(path: Path, given: dict[str, str]) -> _Loaded:
    from lavant.models.petri.monitors import check_monitors  # noqa: PLC0415
    from lavant.models.petri.net import Net  # noqa: PLC0415

    if not path.is_file():
        raise InvalidValue(f"no file {path}")
    try:
        names = runpy.run_path(str(path))
        function = names.get("net")
        parameters = _parameters(function, given) if callable(function) else {}
        net = function(**parameters) if callable(function) else None
        more = [_part(names.get(each), parameters) for each in ("monitors", "invariants", "histories")]
        if isinstance(net, Net):
            check_monitors(more[0], net.flatten())  # finds mistakes between pages, too
    except LavantError as error:
        raise InvalidValue(f"{path}: {error}") from None
    except Exception as error:
        raise InvalidValue(f"{path} cannot be loaded: {type(error).__name__}: {error}") from None
    if not isinstance(net, Net):
        raise InvalidValue(f"{path} has no function `net` that returns a Net")
    return _Loaded(net, parameters, *more)


def _parameters(function: Callable[..., Any], given: dict[str, str]) -> dict[str, Any]:
    """The parameters of a file's function `net`, each of the type of its default."""
    known = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    for name, default in known.items():
        if not isinstance(default, int | float | str):
            raise InvalidValue(f"function `net`: parameter {name} needs a number, a truth value or a text as default")
    for name in given:
        if name not in known:
            has = ", ".join(known) or "none"
            raise InvalidValue(f"--set {name}: function `net` has no such parameter; it has {has}")
    return {**known, **{name: _converted(name, text, type(known[name])) for name, text in given.items()}}


def _converted(name: str, text: str, kind: type[Any]) -> Any:
    import msgspec  # noqa: PLC0415

    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        wanted = {bool: "true or false", int: "a whole number"}.get(kind, "a number")
        raise InvalidValue(f"--set {name}={text}: give {wanted}") from None


def _part(function: Any, parameters: dict[str, Any]) -> tuple[Any, ...]:
    """What another function of the file returns; it may have parameters of `net`."""
    if not callable(function):
        return ()
    wanted = inspect.signature(function).parameters
    return tuple(function(**{name: value for name, value in parameters.items() if name in wanted}))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidValue(f"--set {text} is not of the form NAME=VALUE")
    return name, value


def _marking(run: Any) -> dict[str, str]:
    """Each place with its tokens as CPN ML writes them, with their time stamps if they lie ahead."""
    from lavant.models.petri.language.colours import show_marking  # noqa: PLC0415

    found = {}
    for place, (name, tokens) in zip(run.flat.places, run.marking().items(), strict=True):
        if isinstance(tokens, int):
            found[name] = f"{tokens}`…" if tokens else ""
            continue
        found[name] = show_marking(place.colour, tokens)
    return found
