"""What a load takes of a cluster: hosts, tasks, bytes, memory, delay, and what is exhausted first.

Every host, an executor with one core, matches every publication against its slices, and merges the matches of its
share of the publications. Some hosts read the log. A micro-batch takes what arrived while others were on their way. The
access of a batch overlaps with match and exit of the one before, so the longer of the two is the time between batches:

    access             A = F + a·t + u + n·c₁      F: a batch without tasks
    match and exit     M = (m + e)·t + 2·u + n·c₂  t, u: the driver's and a host's time for a task
    between batches    T = max(A, M, (a + m + e)·t),  n = λ·T;  c₁, c₂: a host's time for a publication
    delay              T/2 + A + M                 half a batch until the own one begins
"""

from __future__ import annotations

import math
from bisect import bisect_left

import msgspec

from lavant.core.errors import InvalidValue
from lavant.pipeline.cluster.assignment import ACCESS_SLICES
from lavant.pipeline.sizing.constants import MATCHERS, MatcherConstants, PipelineConstants

UTILIZATION_MAX = 0.7
"""Of the busiest host's core; beyond it, batches grow quickly."""
HOSTS_MAX = 100_000
SLICES_OF_HOST = 2
"""So that there is something to move."""
COPIES = 3
"""Of ids in an exit task: as they arrive, merged, and as Parquet. Of publications: in Java, in Python, as columns."""


class PipelineLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The subscriptions, and the publications that arrive for them."""

    subscriptions: int
    publications_per_s: float
    matches: float
    """Subscriptions that a publication matches."""
    kind: str = "ranges"
    publication_bytes: float | None = None
    """None takes that of the measured workload."""

    def __post_init__(self) -> None:
        _check_positive(self, "subscriptions", "publications_per_s", "publication_bytes")
        if not 0 <= self.matches <= self.subscriptions:
            raise InvalidValue(f"matches must be between 0 and {self.subscriptions} subscriptions, got {self.matches}")
        if self.kind not in MATCHERS:
            raise InvalidValue(f"kind {self.kind!r} is none of {', '.join(MATCHERS)}")


class ClusterShape(msgspec.Struct, frozen=True, kw_only=True):
    """The executors that may be used, of one core each, and the limits of each machine and of the storage."""

    executors: int
    network_bytes_per_s: float = 1.25e9
    storage_bytes_per_s: float = 2e9
    """Of log and results together, for all hosts."""
    is_storage_shared: bool = True
    """Whether exit tasks write results; otherwise they return them to the driver."""

    def __post_init__(self) -> None:
        _check_positive(self, "executors", "network_bytes_per_s", "storage_bytes_per_s")


def _check_positive(given: msgspec.Struct, *names: str) -> None:
    for name in names:
        value = getattr(given, name)
        if value is not None and not 0 < value < math.inf:
            raise InvalidValue(f"{name} must be positive{'' if value <= 0 else ' and finite'}, got {value}")


class ResourceUse(msgspec.Struct, frozen=True):
    """How much of a resource the load takes; beyond 1 the load is too high."""

    name: str
    used: float
    capacity: float
    unit: str

    @property
    def share(self) -> float:
        return self.used / self.capacity


class SizingEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a load takes. Rates are of the whole cluster unless a name says otherwise."""

    hosts: int
    hosts_needed: int | None
    """Hosts that keep within `UTILIZATION_MAX`; None if no number does."""
    match_slices: int
    access_tasks: int
    exit_tasks: int
    """Of a micro-batch, which also has a match task for each host."""
    access_cores: float
    match_cores: float
    exit_cores: float
    """Cores that are busy with it on average."""
    batch_s: float
    """Between two batches; infinite if the hosts cannot keep up."""
    batch_publications: float
    delay_s: float
    broadcast_bytes_per_s: float
    shuffle_bytes_per_s: float
    log_bytes_per_s: float
    result_bytes_per_s: float
    executor_bytes: float
    resources: tuple[ResourceUse, ...]
    """The scarcest first."""

    @property
    def is_feasible(self) -> bool:
        return self.resources[0].share < 1

    @property
    def headroom(self) -> float:
        """How many times the load would exhaust the scarcest resource."""
        return 1 / self.resources[0].share


def estimate(
    load: PipelineLoad,
    cluster: ClusterShape,
    constants: PipelineConstants = PipelineConstants(),  # noqa: B008 - a value
    *,
    hosts: int | None = None,
) -> SizingEstimate:
    """For so many hosts; by default the fewest within `UTILIZATION_MAX`, or all executors if they do not suffice."""
    needed = _hosts_needed(load, constants)
    if hosts is None:
        hosts = cluster.executors if needed is None else min(needed, cluster.executors)
    rate, matcher = load.publications_per_s, MATCHERS[load.kind]
    work = _Work.of(load, hosts, constants)
    access, tasks = work.access_tasks, work.access_tasks + 2 * hosts
    t, u = constants.task.value, constants.start.value
    accessing = _Line(constants.batch.value + access * t + u, rate * work.access_s / access)
    matching = _Line(2 * (hosts * t + u), rate * work.host_s)
    batch_s = max(accessing.fixed_point, matching.fixed_point, tasks * t)
    bytes_each = matcher.publication_bytes.value if load.publication_bytes is None else load.publication_bytes
    headers = hosts * hosts * constants.block_bytes.value / batch_s
    shuffle = rate * _shuffled_bytes(load, hosts, constants) + headers
    log = rate * bytes_each
    results = rate * (load.matches * constants.id_bytes.value + constants.row_bytes.value)
    through_host = log + (shuffle * (hosts - 1) / hosts + results) / hosts
    through_driver = 2 * log  # collects the blocks, and gives them to the first hosts, which pass them on
    if not cluster.is_storage_shared:
        through_driver += results
    resources = (
        ResourceUse("the busiest host's core", rate * work.host_s, 1, "cores"),
        ResourceUse("a host's network", through_host, cluster.network_bytes_per_s, "bytes/s"),
        ResourceUse("the driver's network", through_driver, cluster.network_bytes_per_s, "bytes/s"),
        ResourceUse("the storage", log + results, cluster.storage_bytes_per_s, "bytes/s"),
    )
    return SizingEstimate(
        hosts=hosts,
        hosts_needed=needed,
        match_slices=hosts * SLICES_OF_HOST,
        access_tasks=access,
        exit_tasks=hosts,
        access_cores=rate * work.access_s,
        match_cores=rate * work.match_s * hosts,
        exit_cores=rate * work.exit_s,
        batch_s=batch_s,
        batch_publications=rate * batch_s,
        delay_s=batch_s / 2 + accessing.at(batch_s) + matching.at(batch_s),
        broadcast_bytes_per_s=log * hosts,
        shuffle_bytes_per_s=shuffle,
        log_bytes_per_s=log,
        result_bytes_per_s=results,
        executor_bytes=_executor_bytes(load, hosts, rate * batch_s, bytes_each, constants),
        resources=tuple(sorted(resources, key=lambda resource: -resource.share)),
    )


class _Line(msgspec.Struct, frozen=True):
    """The time of a stage: fixed, and a share of the time between batches."""

    fixed_s: float
    share: float

    def at(self, batch_s: float) -> float:
        return self.fixed_s + self.share * batch_s

    @property
    def fixed_point(self) -> float:
        return self.fixed_s / (1 - self.share) if self.share < 1 else math.inf


class _Work(msgspec.Struct, frozen=True):
    """Seconds of one core for a publication."""

    access_s: float
    match_s: float
    """At each host."""
    exit_s: float
    hosts: int
    access_tasks: int

    @classmethod
    def of(cls, load: PipelineLoad, hosts: int, constants: PipelineConstants) -> _Work:
        matcher = MATCHERS[load.kind]
        match_s = (
            constants.decode.value
            + SLICES_OF_HOST * matcher.publication.value
            + load.subscriptions / hosts * matcher.subscription.value
            + load.matches / hosts * matcher.match.value
        )
        exit_s = constants.exit_row.value + load.matches * constants.exit_id.value + hosts * constants.exit_list.value
        return cls(constants.access.value, match_s, exit_s, hosts, min(ACCESS_SLICES, hosts))

    @property
    def host_s(self) -> float:
        """Of a host that matches every publication, and has its share of access and exit."""
        return self.match_s + self.access_s / self.access_tasks + self.exit_s / self.hosts


def _hosts_needed(load: PipelineLoad, constants: PipelineConstants) -> int | None:
    """The work of a host falls with their number, towards what each of them has to do for itself."""

    def suffices(hosts: int) -> bool:
        return load.publications_per_s * _Work.of(load, hosts, constants).host_s <= UTILIZATION_MAX

    if not suffices(HOSTS_MAX):
        return None
    return bisect_left(range(1, HOSTS_MAX), True, key=suffices) + 1


def _shuffled_bytes(load: PipelineLoad, hosts: int, constants: PipelineConstants) -> float:
    """Of a publication: a length from every host, and ids, or runs where they are shorter."""
    matcher: MatcherConstants = MATCHERS[load.kind]
    ids = load.matches * constants.gap_bytes.value
    runs = matcher.runs.value * hosts * SLICES_OF_HOST * constants.run_bytes.value
    return hosts * constants.list_bytes.value + (min(ids, runs) if runs else ids)


def _executor_bytes(
    load: PipelineLoad, hosts: int, count: float, bytes_each: float, constants: PipelineConstants
) -> float:
    matcher = MATCHERS[load.kind]
    slices = load.subscriptions / hosts * matcher.memory.value
    row_ids = load.subscriptions * constants.id_bytes.value if matcher.runs.value else 0.0
    publications = count * bytes_each * COPIES
    found = count * _shuffled_bytes(load, hosts, constants) / hosts
    merged = count / hosts * load.matches * constants.id_bytes.value * COPIES
    fixed = constants.worker_bytes.value + constants.java_bytes.value
    return fixed + slices + row_ids + publications + found + merged
