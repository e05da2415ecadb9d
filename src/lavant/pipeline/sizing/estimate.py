"""What a load takes of a cluster: hosts, tasks, bytes, memory, delay, and what is exhausted first.

Every host matches every publication against its slices, and merges the matches of its share of the publications; a host
is an executor with one core. A micro-batch takes all publications that arrived during the one before:

    T = F + N·t + n·c,  n = λ·T   ⇒   T = (F + N·t) / (1 - λ·c)

where F is the time of a batch without tasks, N·t the driver's time for the tasks, and c the time that a host needs for
a publication. A publication waits half a batch for its own to begin, which then takes T.
"""

from __future__ import annotations

import math

import msgspec

from lavant.core.errors import InvalidValue
from lavant.pipeline.sizing.constants import MATCHERS, MatcherConstants, PipelineConstants

UTILIZATION_MAX = 0.7
"""Of the hosts' cores; beyond it, batches grow quickly."""
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
        for name in ("subscriptions", "publications_per_s"):
            if getattr(self, name) <= 0:
                raise InvalidValue(f"{name} must be positive, got {getattr(self, name)}")
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

    def __post_init__(self) -> None:
        for name in ("executors", "network_bytes_per_s", "storage_bytes_per_s"):
            if getattr(self, name) <= 0:
                raise InvalidValue(f"{name} must be positive, got {getattr(self, name)}")


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
    slices: int
    tasks: int
    """Of a micro-batch: access, match and exit."""
    access_cores: float
    match_cores: float
    exit_cores: float
    """Cores that are busy with it on average."""
    batch_s: float
    """Infinite if the hosts cannot keep up."""
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
) -> SizingEstimate:
    """The fewest hosts that keep within `UTILIZATION_MAX`; all executors if they do not suffice."""
    needed = _hosts_needed(load, constants)
    hosts = cluster.executors if needed is None else min(needed, cluster.executors)
    return estimate_hosts(load, cluster, hosts, constants, needed)


def estimate_hosts(
    load: PipelineLoad,
    cluster: ClusterShape,
    hosts: int,
    constants: PipelineConstants = PipelineConstants(),  # noqa: B008 - a value
    hosts_needed: int | None = None,
) -> SizingEstimate:
    """The same for a given number of hosts."""
    rate, matcher = load.publications_per_s, MATCHERS[load.kind]
    work = _Work.of(load, hosts, constants)
    tasks = 3 * hosts
    overhead = constants.batch.value + tasks * constants.task.value
    busy = rate * work.host_s
    batch_s = overhead / (1 - busy) if busy < 1 else math.inf
    count = rate * batch_s
    bytes_each = matcher.publication_bytes.value if load.publication_bytes is None else load.publication_bytes
    broadcast = rate * bytes_each * hosts
    headers = hosts * hosts * constants.block_bytes.value / batch_s
    shuffle = rate * _shuffled_bytes(load, hosts, constants) + headers
    results = rate * (load.matches * constants.id_bytes.value + constants.row_bytes.value)
    remote = (hosts - 1) / hosts
    driver = rate * bytes_each * 2  # collects the blocks, and gives them to the first hosts, which pass them on
    resources = (
        ResourceUse("executors' cores", busy * hosts, hosts, "cores"),
        ResourceUse(
            "an executor's network",
            rate * bytes_each + shuffle * remote / hosts + results / hosts,
            cluster.network_bytes_per_s,
            "bytes/s",
        ),
        ResourceUse("the driver's network", driver, cluster.network_bytes_per_s, "bytes/s"),
        ResourceUse("storage", rate * bytes_each + results, cluster.storage_bytes_per_s, "bytes/s"),
    )
    return SizingEstimate(
        hosts=hosts,
        hosts_needed=hosts_needed,
        slices=hosts * SLICES_OF_HOST,
        tasks=tasks,
        access_cores=rate * work.access_s,
        match_cores=rate * work.match_s * hosts,
        exit_cores=rate * work.exit_s,
        batch_s=batch_s,
        batch_publications=count,
        delay_s=1.5 * batch_s,
        broadcast_bytes_per_s=broadcast,
        shuffle_bytes_per_s=shuffle,
        log_bytes_per_s=rate * bytes_each,
        result_bytes_per_s=results,
        executor_bytes=_executor_bytes(load, hosts, count, bytes_each, constants),
        resources=tuple(sorted(resources, key=lambda resource: -resource.share)),
    )


class _Work(msgspec.Struct, frozen=True):
    """Seconds of one core for a publication."""

    access_s: float
    match_s: float
    """At each host."""
    exit_s: float
    hosts: int

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
        return cls(constants.access.value, match_s, exit_s, hosts)

    @property
    def host_s(self) -> float:
        """Of a host, which matches every publication, and has its share of access and exit."""
        return self.match_s + (self.access_s + self.exit_s) / self.hosts


def _hosts_needed(load: PipelineLoad, constants: PipelineConstants) -> int | None:
    """Work per host is fixed + shared / hosts, so a number suffices if the fixed part leaves room."""
    one = _Work.of(load, 1, constants)
    many = _Work.of(load, 2, constants)
    shared = 2 * (one.host_s - many.host_s)
    fixed = one.host_s - shared
    room = UTILIZATION_MAX / load.publications_per_s - fixed
    return None if room <= 0 else max(1, math.ceil(shared / room - 1e-9))


def _shuffled_bytes(load: PipelineLoad, hosts: int, constants: PipelineConstants) -> float:
    """Of a publication: a length from every host, and ids, or runs where they are shorter."""
    matcher: MatcherConstants = MATCHERS[load.kind]
    ids = load.matches * constants.id_bytes.value
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
