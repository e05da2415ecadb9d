"""Measured constants of the pipeline, each with its unit; `make bench` measures them again and compares.

Values are of one core. They are medians of several runs on the machine and day of `MEASURED`; other processors differ
by a factor, which is the same for most of them.
"""

from __future__ import annotations

import msgspec

MEASURED = "2026-11-17, two shared cores of an AMD EPYC (x86_64), Python 3.11, PySpark 4.3.0"


class Constant(msgspec.Struct, frozen=True):
    """A value, its unit, and what was measured."""

    value: float
    unit: str
    of: str


class MatcherConstants(msgspec.Struct, frozen=True, kw_only=True):
    """Matching, for one kind of subscriptions. The three times add up to the time of a publication at a host."""

    publication: Constant
    """In each slice, however small it is."""
    subscription: Constant
    """For each subscription of the host, whether it matches or not."""
    match: Constant
    memory: Constant
    runs: Constant
    """Runs of neighbouring matches in a slice; they travel instead of ids where they are shorter."""
    publication_bytes: Constant
    """In the log, and on the way to the match tasks."""


class PipelineConstants(msgspec.Struct, frozen=True, kw_only=True):
    """Everything else that does not depend on the kind of subscriptions."""

    access: Constant = Constant(0.2e-6, "s/publication", "check a publication and encode its block")
    decode: Constant = Constant(0.1e-6, "s/publication", "decode the block in a match task")
    exit_id: Constant = Constant(9e-9, "s/match", "merge ids and write them as Parquet")
    exit_row: Constant = Constant(0.15e-6, "s/publication", "write a row of the notifications")
    exit_list: Constant = Constant(10e-9, "s/publication and match task", "merge the list of one match task")
    batch: Constant = Constant(0.030, "s/batch", "a micro-batch of Spark without tasks: offsets, planning, manifest")
    task: Constant = Constant(0.001, "s/task", "the driver's part of a task: serialise, schedule, collect")
    start: Constant = Constant(0.007, "s/task", "the host's part of a task: wake the worker, load the function")
    id_bytes: Constant = Constant(4, "bytes/match", "an id in the shuffle or a part")
    run_bytes: Constant = Constant(12, "bytes/run", "a run in the shuffle")
    list_bytes: Constant = Constant(4, "bytes/publication and match task", "the length of a list in the shuffle")
    block_bytes: Constant = Constant(200, "bytes/pair of match and exit task", "header of a block in the shuffle")
    row_bytes: Constant = Constant(30, "bytes/publication", "key and id in a part")
    worker_bytes: Constant = Constant(140e6, "bytes/executor", "a Python worker with everything loaded")
    java_bytes: Constant = Constant(600e6, "bytes/executor", "Java's heap for tasks without much data")


EQUALITY = MatcherConstants(
    publication=Constant(0.75e-6, "s/publication and slice", "stock, 500 symbols"),
    subscription=Constant(0.0, "s/publication and subscription", "stock: the index finds groups, whatever their size"),
    match=Constant(0.0, "s/match", "stock: the ends of a run are found, whatever is between"),
    memory=Constant(80, "bytes/subscription", "stock"),
    runs=Constant(6, "runs/publication and slice", "stock"),
    publication_bytes=Constant(53, "bytes/publication", "stock"),
)
RANGES = MatcherConstants(
    publication=Constant(1.5e-6, "s/publication and slice", "synthetic, 20 attributes, .01 %"),
    subscription=Constant(1.0e-10, "s/publication and subscription", "synthetic, 20 attributes, .01 %"),
    match=Constant(30e-9, "s/match", "synthetic, 1 % against .01 %"),
    memory=Constant(555, "bytes/subscription", "synthetic, 20 attributes"),
    runs=Constant(0, "runs/publication and slice", "synthetic: matches lie apart"),
    publication_bytes=Constant(160, "bytes/publication", "synthetic, 20 attributes"),
)
ENCRYPTED = MatcherConstants(
    publication=Constant(0.0, "s/publication and slice", "encrypted: the tests are all"),
    subscription=Constant(1.35e-9, "s/publication and subscription", "encrypted, d = 4"),
    match=Constant(40e-9, "s/match", "encrypted, d = 4, 1 % against .01 %"),
    memory=Constant(496, "bytes/subscription", "encrypted, d = 4"),
    runs=Constant(0, "runs/publication and slice", "encrypted: matches lie apart"),
    publication_bytes=Constant(44, "bytes/publication", "encrypted, d = 4"),
)
MATCHERS = {"equality": EQUALITY, "ranges": RANGES, "encrypted": ENCRYPTED}
"""By the filters that decide: an equality with a bound (`symbol = 'IBM' and price < 100`), ranges only, encrypted."""
