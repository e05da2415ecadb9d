"""Measured constants of the pipeline, each with its unit; `make bench` measures them again and compares.

Values are of one core. They are medians of several runs on the machine and day of `MEASURED`; other processors differ
by a factor, which is the same for most of them.
"""

from __future__ import annotations

import msgspec

MEASURED = "2026-11-17, two shared cores of an AMD EPYC (x86_64), Python 3.11, PySpark 4.3.0"


class Measured(msgspec.Struct, frozen=True):
    """A value, its unit, and what was measured."""

    value: float
    unit: str
    of: str


class MatcherConstants(msgspec.Struct, frozen=True, kw_only=True):
    """Matching, for one kind of subscriptions. The three times add up to the time of a publication at a host."""

    publication: Measured
    """In each slice, however small it is."""
    subscription: Measured
    """For each subscription of the host, whether it matches or not."""
    match: Measured
    memory: Measured
    runs: Measured
    """Runs of neighbouring matches in a slice; they travel instead of ids where they are shorter."""
    publication_bytes: Measured
    """In the log, and on the way to the match tasks."""


class PipelineConstants(msgspec.Struct, frozen=True, kw_only=True):
    """Everything else that does not depend on the kind of subscriptions."""

    access: Measured = Measured(0.2e-6, "s/publication", "check a publication and encode its block")
    decode: Measured = Measured(0.1e-6, "s/publication", "decode the block in a match task")
    exit_id: Measured = Measured(4e-9, "s/match", "merge ids and write them as Parquet")
    exit_row: Measured = Measured(0.15e-6, "s/publication", "write a row of the notifications")
    exit_list: Measured = Measured(10e-9, "s/publication and match task", "merge the list of one match task")
    batch: Measured = Measured(0.030, "s/batch", "a micro-batch of Spark without tasks: offsets, planning, manifest")
    task: Measured = Measured(0.001, "s/task", "the driver's part of a task: serialise, schedule, collect")
    start: Measured = Measured(0.007, "s/task", "the host's part of a task: wake the worker, load the function")
    id_bytes: Measured = Measured(4, "bytes/match", "an id in a part")
    gap_bytes: Measured = Measured(2, "bytes/match", "an id in the shuffle, among others some thousand apart")
    run_bytes: Measured = Measured(5, "bytes/run", "a run in the shuffle, of a slice of up to 65,536 subscriptions")
    list_bytes: Measured = Measured(4, "bytes/publication and match task", "the length of a list in the shuffle")
    block_bytes: Measured = Measured(100, "bytes/pair of match and exit task", "header of a block in the shuffle")
    row_bytes: Measured = Measured(30, "bytes/publication", "key and id in a part")
    worker_bytes: Measured = Measured(140e6, "bytes/executor", "a Python worker with everything loaded")
    java_bytes: Measured = Measured(600e6, "bytes/executor", "Java's heap for tasks without much data")


EQUALITY = MatcherConstants(
    publication=Measured(0.75e-6, "s/publication and slice", "stock, 500 symbols"),
    subscription=Measured(0.0, "s/publication and subscription", "stock: the index finds groups, whatever their size"),
    match=Measured(0.0, "s/match", "stock: the ends of a run are found, whatever is between"),
    memory=Measured(80, "bytes/subscription", "stock"),
    runs=Measured(6, "runs/publication and slice", "stock"),
    publication_bytes=Measured(53, "bytes/publication", "stock"),
)
RANGES = MatcherConstants(
    publication=Measured(1.5e-6, "s/publication and slice", "synthetic, 20 attributes, .01 %"),
    subscription=Measured(1.0e-10, "s/publication and subscription", "synthetic, 20 attributes, .01 %"),
    match=Measured(30e-9, "s/match", "synthetic, 1 % against .01 %"),
    memory=Measured(555, "bytes/subscription", "synthetic, 20 attributes"),
    runs=Measured(0, "runs/publication and slice", "synthetic: matches lie apart"),
    publication_bytes=Measured(160, "bytes/publication", "synthetic, 20 attributes"),
)
ENCRYPTED = MatcherConstants(
    publication=Measured(0.0, "s/publication and slice", "encrypted: the tests are all"),
    subscription=Measured(1.35e-9, "s/publication and subscription", "encrypted, d = 4"),
    match=Measured(40e-9, "s/match", "encrypted, d = 4, 1 % against .01 %"),
    memory=Measured(496, "bytes/subscription", "encrypted, d = 4"),
    runs=Measured(0, "runs/publication and slice", "encrypted: matches lie apart"),
    publication_bytes=Measured(44, "bytes/publication", "encrypted, d = 4"),
)
MATCHERS = {"equality": EQUALITY, "ranges": RANGES, "encrypted": ENCRYPTED}
"""By the filters that decide: an equality with a bound (`symbol = 'IBM' and price < 100`), ranges only, encrypted."""
