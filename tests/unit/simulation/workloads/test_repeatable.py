"""The same seed gives the same bytes, in any process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

SCRIPT = """
import hashlib
from lavant.simulation.workloads.synthetic import EncryptedWorkload
from lavant.simulation.workloads.stock import StockWorkload
from lavant.simulation.workloads.synthetic import SyntheticWorkload
from lavant.simulation.workloads.text import TextWorkload

digest = hashlib.blake2b(digest_size=16)
for workload in (StockWorkload(symbols=30, subscriptions=300), SyntheticWorkload(subscriptions=100)):
    meta, arrays = workload.filters().to_arrays()
    digest.update(repr(meta).encode())
    for name, array in arrays.items():
        digest.update(name.encode() + array.tobytes())
    digest.update(workload.publications(50, stream=2).records.serialize())
text = TextWorkload(subscriptions=50)
digest.update(repr(text.filters()).encode())
digest.update(text.publications(5).records.serialize())
encrypted = EncryptedWorkload(subscriptions=20)
digest.update(encrypted.filters().tests.tobytes())
digest.update(encrypted.publications(5).points.tobytes())
print(digest.hexdigest())
"""


def digest_with(hash_seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def test_a_workload_is_the_same_in_two_processes_that_hash_differently() -> None:
    first, second = digest_with(1), digest_with(2)
    assert first == second
    assert len(first) == 2 * hashlib.blake2b(digest_size=16).digest_size
