"""The output of `lavant plan`: allocation, predictions and next bottleneck, as values, text, JSON and chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from lavant.cli.reports.charts import Chart, ChartLine, picture
from lavant.control.allocation import AllocationPlan, Budget, Goal, System, min_cost, min_time
from lavant.control.allocation.system.toml_file import SystemFile
from lavant.core.errors import Infeasible, InvalidValue
from lavant.models.evaluation import Model
from lavant.models.prediction import Prediction, predict
from lavant.models.response_times import ResponseTimes
from lavant.models.sensitivity import Sensitivity, sensitivity


class PlanOutlook(msgspec.Struct, frozen=True, kw_only=True):
    """A plan with its predictions."""

    system: System
    goal: Goal
    plan: AllocationPlan
    prediction: Prediction
    p95_s: tuple[float, ...]
    """95th percentile of the response time of each job type."""
    sensitivity: Sensitivity
    kept: Prediction | None = None
    """Prediction for the previous allocation under the changed load."""


def read(path: Path) -> SystemFile:
    """Read a system file."""
    try:
        return SystemFile(path.read_text(encoding="utf-8"), name=str(path))
    except OSError as error:
        raise InvalidValue(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{path} is not UTF-8 text: {error}") from None


def outlook_before(file: SystemFile) -> PlanOutlook | None:
    """The plan before --what-if changes, if it is feasible."""
    try:
        return None if file.goal is None else outlook(file)
    except Infeasible:
        return None


def outlook(file: SystemFile, *, before: PlanOutlook | None = None) -> PlanOutlook:
    """Plan for the file's goal."""
    if file.goal is None:
        raise InvalidValue("the file has no [goal]; add response_s or budget to it, or give --what-if response_s=50")
    system, goal = file.system, file.goal
    try:
        plan = min_time(system, goal) if isinstance(goal, Budget) else min_cost(system, goal)
    except Infeasible as error:
        key = "budget" if isinstance(goal, Budget) else "response_s"
        raise Infeasible(f"{file.place('goal', key)}: {error}") from None
    model = Model(system.network, refined=system.refined)
    times = ResponseTimes(model, plan.consumers)
    return PlanOutlook(
        system=system,
        goal=goal,
        plan=plan,
        prediction=predict(model, plan.consumers),
        p95_s=tuple(times.percentile_s(0.95, name) for name in system.network.job_names),
        sensitivity=sensitivity(model, plan.consumers),
        kept=None if before is None else predict(model, before.plan.consumers),
    )


def as_text(found: PlanOutlook, *, before: PlanOutlook | None = None) -> str:
    """The plan as text."""
    system, plan, prediction = found.system, found.plan, found.prediction
    bottleneck = found.sensitivity.bottleneck
    extra = system.cost(plan.consumers) - system.cost(system.least)
    lines = [
        f"goal         {_goal_text(found.goal, plan)}",
        f"allocation   {system.named(plan.consumers)}",
        f"cost         {system.cost(plan.consumers):g}, {extra:g} more than the least",
        f"response     {prediction.response_s:.2f} s over all jobs; {prediction.wip:.3f} requests in the system",
        "",
        *_columns(
            ("topic", "consumers", "busy", "requests", "visit s", "one more saves"),
            [
                (
                    topic.topic,
                    f"{topic.consumers}",
                    f"{topic.utilisation:.0%}",
                    f"{topic.requests:.3f}",
                    f"{topic.response_s:.1f}",
                    f"{saved:.3f}",
                )
                for topic, saved in zip(prediction.topics, found.sensitivity.wip_saved_by_consumer, strict=True)
            ],
        ),
        "",
        *_columns(
            ("job", "response s", "p95 s"),
            [
                (job.job, f"{job.response_s:.1f}", f"{p95:.1f}")
                for job, p95 in zip(prediction.jobs, found.p95_s, strict=True)
            ],
        ),
        "",
        f"next bottleneck: topic {bottleneck}, full at {found.sensitivity.headroom:.2f} times this load",
    ]
    if before is not None and found.kept is not None:
        kept = f"{found.kept.response_s:.2f} s" if found.kept.stable else "for ever: it is overloaded"
        lines += [
            f"before the change: {before.system.named(before.plan.consumers)}, cost "
            f"{before.system.cost(before.plan.consumers):g}, {before.prediction.response_s:.2f} s; "
            f"kept, it would take {kept}"
        ]
    return "\n".join(lines)


def steps_as_text(found: PlanOutlook) -> str:
    """The steps of the plan, one consumer each, as text."""
    rows = [
        (
            _digits(step.consumers),
            _number(step.wip),
            _number(step.response_s, 2),
            f"{step.cost:g}",
            step.decision.reason,
        )
        for step in found.plan.steps
    ]
    return "\n".join(_columns(("consumers", "requests", "response s", "cost", "why"), rows, left={0, 4}))


def as_json(found: PlanOutlook) -> bytes:
    """The plan as JSON; infinite values are null."""
    names, jobs = found.system.network.topic_names, found.system.network.job_names
    view = {
        "goal": found.goal,
        "allocation": dict(zip(names, found.plan.consumers, strict=True)),
        "cost": found.system.cost(found.plan.consumers),
        "wip": found.prediction.wip,
        "response_s": found.prediction.response_s,
        "topics": found.prediction.topics,
        "jobs": found.prediction.jobs,
        "response_p95_s": dict(zip(jobs, found.p95_s, strict=True)),
        "sensitivity": found.sensitivity,
        "reason": found.plan.decision.reason,
        "steps": [
            {
                "allocation": dict(zip(names, step.consumers, strict=True)),
                "wip": step.wip,
                "response_s": step.response_s,
                "response_of_job_s": dict(zip(jobs, step.response_of_job_s, strict=True)),
                "cost": step.cost,
                "action": step.decision.action,
                "reason": step.decision.reason,
            }
            for step in found.plan.steps
        ],
    }
    return msgspec.json.format(msgspec.json.encode(view), indent=2)


def as_picture(found: PlanOutlook) -> str:
    """Chart of response times and consumers over the cost of each step."""
    steps = found.plan.steps
    costs = [step.cost for step in steps]
    jobs = [
        ChartLine(f"job {name}", costs, [step.response_of_job_s[number] for step in steps])
        for number, name in enumerate(found.system.network.job_names)
    ]
    overall = ChartLine("all jobs", costs, [step.response_s for step in steps])
    limit = None if isinstance(found.goal, Budget) else ("target", found.goal.response_s)
    chosen = found.system.cost(found.plan.consumers)
    budget = f"budget of {found.goal.additional:g} more: " if isinstance(found.goal, Budget) else ""
    choice = (f"{budget}plan at cost {chosen:g}", chosen)
    consumers = [
        ChartLine(name, costs, [float(step.consumers[number]) for step in steps], steps=True)
        for number, name in enumerate(found.system.network.topic_names)
    ]
    return picture(
        [
            Chart(
                "Predicted response time",
                "cost of the allocation",
                "response time (s)",
                [overall, *jobs],
                limit,
                choice=choice,
            ),
            Chart("Consumers by topic", "cost of the allocation", "consumers", consumers, choice=choice),
        ]
    )


def _goal_text(goal: Goal, plan: AllocationPlan) -> str:
    if isinstance(goal, Budget):
        return f"least response time for {goal.additional:g} more than the least allocation costs"
    predicted_s = plan.decision.figures["predicted_s"]
    return f"least cost for a {goal} of {goal.response_s:g} s; predicted {predicted_s:.2f} s"


def _digits(consumers: tuple[int, ...]) -> str:
    return " ".join(map(str, consumers))


def _number(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "∞"


def _columns(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, left: set[int] | None = None) -> list[str]:
    left = {0} if left is None else left
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]
