"""Calls the kernels of the pipeline with each combination of argument types in use."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from lavant.broker.matching.interface import Matches
from lavant.core.kernels.warmup import KernelSet
from lavant.pipeline.stream.exchange import Lists, merge_files, write_file


def _call_all() -> None:
    found = Lists(np.arange(1), pa.nulls(1, pa.string()), Matches(np.array([0, 1]), np.zeros(1, np.uint32)), {})
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        merge_files([place / write_file(place, [found])])


PIPELINE_KERNELS = KernelSet(_call_all, kinds=1)
