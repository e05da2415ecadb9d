"""Calls the kernels of the pipeline with each combination of argument types in use."""

from __future__ import annotations

import numpy as np

from lavant.broker.matching.interface import Matches
from lavant.broker.matching.runs import Runs, collect_runs
from lavant.core.kernels.kernels import frozen
from lavant.core.kernels.warmup import KernelSet
from lavant.pipeline.operators.exchange import MatchedBlock, SegmentKey, merge_blocks
from lavant.pipeline.operators.parquet import encode_levels


def _call_all() -> None:
    collect_runs(np.zeros((1, 1), np.int64), np.ones((1, 1), np.int64))
    one = np.zeros(1, np.uint32)
    runs = [(SegmentKey(0, 0), Runs(one, one, one + np.uint32(1)))]
    found = MatchedBlock(0, 1, 0, runs, Matches(np.array([0, 1]), one), [], None, [])
    encode_levels(frozen(np.ones(1, np.int64)))
    merge_blocks([MatchedBlock.from_bytes(found.to_bytes())], lambda _: one)


PIPELINE_KERNELS = KernelSet("pipeline", _call_all, kinds=12)
