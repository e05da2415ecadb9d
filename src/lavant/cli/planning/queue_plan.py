"""`lavant queue plan`: delivery times of a queue, the consumers it needs, and its best visibility timeout."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lavant.cli.common import AsJson, CaFile, Key, counted, print_table
from lavant.core.errors import Infeasible, InvalidValue

if TYPE_CHECKING:
    from lavant.models.reliable_queue import QueueGoal, QueuePlan, QueueScenario
    from lavant.models.reliable_queue.scenario import ScenarioFile

LEASED_AHEAD = (
    "services were measured from receive to acknowledgement, so they look longer if consumers lease messages ahead, as "
    "`consume` does; measure with consumers that receive one message at a time, or give a file"
)


def plan_queue(
    scenario: Annotated[Path | None, typer.Argument(help="TOML file of the load, the threads and the queue")] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="take the load from telemetry: the address of a server with --telemetry, or a directory of telemetry",
        ),
    ] = None,
    queue: Annotated[str | None, typer.Option(help="with --from: name of the queue")] = None,
    consumers: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="with --from: consumers; by default the fewest that can do it"),
    ] = None,
    loss: Annotated[float | None, typer.Option(help="with --from: probability that a delivery is lost; 0.01")] = None,
    visibility_s: Annotated[float | None, typer.Option(help="with --from: visibility timeout of the queue; 30")] = None,
    delivery_s: Annotated[float | None, typer.Option(help="target for the delivery time; replaces the file's")] = None,
    percentile: Annotated[
        float | None, typer.Option(help="percentile the target is about, such as 0.95; by default the mean")
    ] = None,
    as_json: AsJson = False,
    key: Key = "",
    ca_file: CaFile = None,
) -> None:
    """Predict delivery time and waiting; compute the fewest consumers for a target, and the best visibility timeout.

    Exit code 2 if the file is invalid, 8 if the load is unstable or no number of consumers reaches the target.
    """
    from lavant.models.reliable_queue import QueueGoal, plan  # noqa: PLC0415

    if (scenario is None) == (source is None):
        raise InvalidValue("give a scenario file, or --from SOURCE, and not both")
    if source is None:
        assert scenario is not None
        if any(value is not None for value in (queue, consumers, loss, visibility_s)):
            raise InvalidValue("--queue, --consumers, --loss and --visibility-s belong to --from; the file has them")
        file = read_scenario(scenario)
        given, goal = file.scenario, file.goal
    else:
        given, goal = _observed(source, queue, consumers, loss, visibility_s, key, ca_file), QueueGoal()
    if delivery_s is not None or percentile is not None:
        goal = _goal(goal, delivery_s, percentile)
    try:
        found = plan(given, goal)
    except Infeasible as error:
        if source is None:
            raise
        raise Infeasible(f"{error}; {LEASED_AHEAD}") from None
    if as_json:
        import msgspec  # noqa: PLC0415

        print(msgspec.json.format(msgspec.json.encode({"scenario": given, "goal": goal, "plan": found})).decode())
        return
    _print(given, goal, found, is_measured=source is not None)


def read_scenario(path: Path) -> ScenarioFile:
    """Read a scenario file."""
    from lavant.models.reliable_queue.scenario import ScenarioFile  # noqa: PLC0415

    try:
        return ScenarioFile(path.read_text(encoding="utf-8"), name=str(path))
    except OSError as error:
        raise InvalidValue(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{path} is not UTF-8 text: {error}") from None


def _observed(
    source: str,
    queue: str | None,
    consumers: int | None,
    loss: float | None,
    visibility_s: float | None,
    key: str,
    ca_file: Path | None,
) -> QueueScenario:
    """The load of a queue in telemetry, which knows neither losses nor the timeout."""
    import msgspec  # noqa: PLC0415

    from lavant.cli.reports.telemetry import history, queue_scenario  # noqa: PLC0415

    if queue is None:
        raise InvalidValue("give the name of the queue with --queue")
    loss = 0.01 if loss is None else loss
    if not 0 <= loss < 1:
        raise InvalidValue(f"--loss is a probability from 0 to below 1, got {loss:g}")
    visibility_s = 30.0 if visibility_s is None else visibility_s
    if not visibility_s > 0:
        raise InvalidValue(f"--visibility-s must be above 0, got {visibility_s:g}")
    found = queue_scenario(history(source, key, ca_file), queue, consumers=consumers, loss=loss)
    return msgspec.structs.replace(found, visibility_s=visibility_s)


def _goal(goal: QueueGoal, delivery_s: float | None, percentile: float | None) -> QueueGoal:
    import msgspec  # noqa: PLC0415

    target_s = goal.delivery_s if delivery_s is None else delivery_s
    if target_s is None:
        raise InvalidValue("--percentile is about a target; give --delivery-s too")
    if not target_s > 0:
        raise InvalidValue(f"--delivery-s must be above 0, got {target_s:g}")
    kept = goal.percentile if delivery_s is None else None
    return msgspec.structs.replace(goal, delivery_s=target_s, percentile=kept if percentile is None else percentile)


def _print(scenario: QueueScenario, goal: QueueGoal, found: QueuePlan, *, is_measured: bool) -> None:
    prediction = found.prediction
    for warning in found.warnings:
        print(f"warning      {warning}\n")
    print(f"load         {scenario.arrival_rate_per_s:g} messages/s, {scenario.order}, {scenario.loss:.3g} lost")
    if is_measured:
        service = scenario.consumers.service
        print(f"service      {_s(service.mean_s)} from receive to acknowledgement, scv {service.scv:.2g}; measured")
    print(
        f"delivery     {_s(prediction.delivery_s)} on average, {_s(prediction.p50_s)} median, "
        f"{_s(prediction.p95_s)} p95, {_s(prediction.p99_s)} p99"
    )
    print(f"attempts     {prediction.attempts:.3f} for each message; {prediction.duplicates:.3f} duplicates")
    if goal.delivery_s is not None and found.at_least is not None:
        kind = "mean" if goal.percentile is None else f"p{100 * goal.percentile:g}"
        reached_s = found.at_least.percentile_s(goal.percentile)
        print(
            f"target       {counted(found.least_consumers or 0, 'consumer')} for a {kind} of {goal.delivery_s:g} s; "
            f"predicted {_s(reached_s)}"
        )
    print()
    phases = [("senders", prediction.senders), ("consumers", prediction.consumers)]
    rows: list[Any] = [
        (name, str(phase.count), f"{phase.utilisation:.0%}", f"{phase.waiting:.3f}", _s(phase.wait_s))
        for name, phase in phases
        if phase is not None
    ]
    columns = ("phase", "threads", "busy", "waiting", "wait")
    print_table(columns, rows, numbers=columns[1:])
    if prediction.held:
        print(f"{prediction.held:.3f} messages wait for older ones that are not sent yet")
    if found.best_visibility_s is not None:
        print(f"\nbest visibility timeout: {_s(found.best_visibility_s)}\n")
        heads = ("timeout", "duplicates", "consumers busy", "delivery", "p95", "a lost message is late by")
        timeouts = [
            (
                _s(cost.visibility_s),
                f"{cost.duplicates:.2%}",
                f"{cost.utilisation:.0%}",
                _s(cost.delivery_s),
                _s(cost.p95_s),
                _s(cost.lost_s),
            )
            for cost in found.timeouts
        ]
        print_table(heads, timeouts, numbers=heads)


def _s(seconds: float) -> str:
    """
    >>> _s(0.2034), _s(12.0), _s(math.inf), _s(2e-69)
    ('203 ms', '12.00 s', '∞', '0 ms')
    """
    if math.isinf(seconds):
        return "∞"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{round(1000 * seconds, 6):.3g} ms"
