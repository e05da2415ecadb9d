"""The figures of the balancing thesis for `lavant reproduce balancing`."""

from __future__ import annotations

from lavant.simulation.balancing import macro_figures as macro
from lavant.simulation.balancing import micro_figures as micro
from lavant.simulation.balancing.experiment import run_balancing
from lavant.simulation.balancing.setups import chain
from lavant.simulation.figures import FigureEntry, FigureSettings, FigureStatement, Paper, PaperFigure

CHAIN = 8


def figure_chain(settings: FigureSettings) -> PaperFigure:
    """Figures 5.49 to 5.52: eight equal clusters in a chain, over time."""
    traces = {}
    for policy in micro.MICRO:
        traces[policy] = run_balancing(chain(CHAIN), policy, settings.seed, quotes=settings.quotes)
        settings.report(f"chain of {CHAIN}, {policy}")
    charts = []
    far = {}
    for policy, trace in traces.items():
        subscribers = macro.by_cluster(trace, trace.subscribers, is_sum=True)
        charts += [
            macro.over_time("Input utilisation", "mean", trace, macro.by_cluster(trace, trace.input), y_max=1.0),
            macro.over_time("Output utilisation", "mean", trace, macro.by_cluster(trace, trace.output), y_max=1.0),
            macro.over_time("Matching delay", "mean (s)", trace, macro.by_cluster(trace, trace.delay_s), y_max=0.06),
            macro.over_time("Subscribers", "subscribers", trace, subscribers),
        ]
        far[policy] = [int(values[-1]) for values in subscribers.values()]
    return PaperFigure(
        charts=tuple(charts),
        statements=(
            FigureStatement(
                paper="clusters B50 to B80 serve no subscribers, since B40 stays below the threshold of .15",
                here="; ".join(f"{policy}: {', '.join(map(str, counts))}" for policy, counts in far.items())
                + " subscribers in B10 to B80",
                why="a neighbour's load may be .15 lower, so the load that B10 keeps falls off within a few hops",
            ),
        ),
    )


def _micro(name: str, title: str, experiment: micro.MicroExperiment) -> FigureEntry:
    return FigureEntry(name, title, experiment.steps, experiment.figure)


_COMPARED = 2 * len(macro.MACRO) * macro.COMPARED_SEEDS

BALANCING = Paper(
    "balancing",
    "A. Cheung, *Dynamic Load Balancing in Distributed Content-based Publish/Subscribe*",
    "The brokers are a model, the balancers are those of the federation. `thesis` is the thesis's policy, "
    "`shares` Lavant's default, `even-counts` a baseline that evens out numbers of subscriptions. Quotes are drawn, "
    "unless `--quotes` names a file of daily ones.",
    (
        FigureEntry("5.3-5.5", "input utilisation and sessions", len(macro.MACRO), macro.figure_input),
        FigureEntry("5.6-5.8", "queuing delays and output utilisation", len(macro.MACRO), macro.figure_queues),
        FigureEntry("5.9-5.11", "matching delay, delivery delay, subscribers", len(macro.MACRO), macro.figure_delays),
        FigureEntry("5.12-5.13", "standard deviations between brokers", len(macro.MACRO), macro.figure_deviations),
        FigureEntry("5.14", "estimated load", len(macro.MACRO), macro.figure_estimates),
        FigureEntry("5.15", "overhead", len(macro.MACRO), macro.figure_overhead),
        FigureEntry(
            "5.17-5.19", "four clusters: input, output, matching delay", len(macro.MACRO), macro.figure_clusters
        ),
        FigureEntry("5.20-5.22", "four clusters: clients and overhead", len(macro.MACRO), macro.figure_cluster_clients),
        _micro("5.23-5.27", "number of subscribers", micro.SUBSCRIBERS),
        _micro("5.28-5.30", "subscribers without traffic", micro.ZERO_TRAFFIC),
        _micro("5.31-5.34", "number of edge brokers", micro.EDGE_BROKERS),
        _micro("5.35-5.39", "samples in PRESS", micro.SAMPLES),
        _micro("5.40-5.43", "local detection threshold", micro.THRESHOLD),
        _micro("5.44-5.46", "period of local reports", micro.PERIOD),
        _micro("5.47-5.48", "number of clusters", micro.CLUSTERS),
        FigureEntry("5.49-5.52", "a chain of eight clusters", len(micro.MICRO), figure_chain),
        _micro("5.53-5.55", "global detection threshold", micro.CLUSTER_THRESHOLD),
        _micro("5.56-5.57", "period of global reports", micro.CLUSTER_PERIOD),
        FigureEntry("policies", "the policies compared", _COMPARED, macro.figure_policies),
    ),
)
