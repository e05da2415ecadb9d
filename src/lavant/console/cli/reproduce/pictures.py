"""The pictures of e-StreamHub's Figures 8 and 9: load, hosts, CPU of hosts and delays over time, for each policy."""

from __future__ import annotations

from lavant.console.charts import Line, Panel, chart
from lavant.simulation.placement.reproduction import Course


def elasticity_picture(courses: list[Course]) -> str:
    """All policies under one load."""
    first = courses[0].trial.intervals
    trials = [course.trial for course in courses]
    elastic = [trial for trial in trials if trial.policy != "static"]
    panels = [
        Panel("publications a second", [Line("load", [interval.rate_per_s for interval in first])]),
        Panel("hosts", [Line(trial.policy, trial.hosts) for trial in trials]),
        *(
            Panel(
                f"CPU of hosts under {trial.policy} (%): lowest to highest, and mean",
                [
                    Line(
                        trial.policy,
                        [100 * interval.load_low for interval in trial.intervals],
                        [100 * interval.load_high for interval in trial.intervals],
                    ),
                    Line(trial.policy, [100 * interval.load_mean for interval in trial.intervals]),
                ],
            )
            for trial in elastic
        ),
        Panel(
            "delay (ms), mean of 5 s",
            [Line(trial.policy, [interval.delay_ms for interval in trial.intervals]) for trial in trials],
        ),
    ]
    return chart(f"Elastic scaling: {courses[0].load}", [interval.time_s for interval in first], panels)
