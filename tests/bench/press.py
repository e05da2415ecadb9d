"""What PRESS costs a broker: processor time of a publication while a session samples, against without.

python -m tests.bench.press [ROUNDS]

In one durable broker with 10,000 subscriptions a signal starts a sample, in every second slice of work. A sample is
what a session takes: the list of subscriptions that can move, bits of 50 publications, and the covering set of a peer,
1,000 filters, matched with them. A slice is a second of the broker's processor time, as much as a broker at its limit
spends while it samples, so the result does not depend on what else the machine does.

Two figures: the processor time of the functions that sample, as a part of all, and the difference between slices with
and without a sample. The first is exact; the second has everything in it, and the noise of a busy machine too.
"""

from __future__ import annotations

import math
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.timing import processor_s
from tests.integration.frames import FrameClient

from lavant.broker.protocol.subscriptions import Publish, Subscribe

SUBSCRIPTIONS = 10_000
COVERING = 1000
BATCH = 10
AT_ONCE = 20
"""Requests to publish on their way together."""
SLICE_S = 1.0
"""Processor time. A sample that is complete is noticed after a second."""
ROUNDS = 20
"""Of four slices: without, with, with, without a sample."""


class PressCost(NamedTuple):
    without_us: float
    """Processor time of a publication."""
    ratio: float
    """What a publication costs more while a sample is taken: the median of the rounds."""
    low: float
    high: float
    """The 95 % confidence interval of the median."""
    own: float
    """Processor time of the functions that sample, by that of the slices in which they do."""


def serve() -> None:
    """In the process that is measured: a signal starts a sample."""
    from lavant.control.balancing.values import StartSampling
    from lavant.service.federation.balancing.balancer import FederationBalancer
    from lavant.service.federation.balancing.press_sampler import PressSampler, covering_text
    from lavant.service.federation.settings import FederationSettings
    from lavant.service.runtime import process
    from lavant.service.runtime.settings import ServeSettings

    covering = {"B2": tuple(covering_text("", f"symbol = 'S{number}'") for number in range(COVERING))}
    sampling = StartSampling(session="bench", covering=covering, publications=50, timeout_ms=30_000)

    spent_s: list[float] = []

    def timed(function: Any) -> Any:
        def run(*arguments: Any) -> Any:
            started_s = time.thread_time()
            result = function(*arguments)
            spent_s.append(time.thread_time() - started_s)
            return result

        return run

    def start(self: FederationBalancer) -> None:
        original(self)
        loop = self._links.service.loop
        signal.signal(signal.SIGUSR1, lambda *_: loop.call_soon_threadsafe(self._start_sampling, sampling))
        signal.signal(signal.SIGUSR2, lambda *_: print(sum(spent_s), flush=True))

    FederationBalancer._start_sampling = timed(FederationBalancer._start_sampling)  # type: ignore[method-assign]
    PressSampler.see = timed(PressSampler.see)  # type: ignore[method-assign]
    PressSampler.sample = timed(PressSampler.sample)  # type: ignore[method-assign]
    original: Any = FederationBalancer.start
    FederationBalancer.start = start  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as place:
        settings = ServeSettings(port=0, data=Path(place) / "data", federation=FederationSettings(name="B1"))
        process.run(settings, lambda started: print(started.port, flush=True))


def measure_press(rounds: int = ROUNDS) -> PressCost:
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.press", "serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        with FrameClient(int(process.stdout.readline())) as client:
            return _measure(process, client, rounds)
    finally:
        process.terminate()
        process.wait()


def _measure(process: subprocess.Popen[str], client: FrameClient, rounds: int) -> PressCost:
    for start in range(0, SUBSCRIPTIONS, 500):
        client.ask_all([Subscribe(f"symbol = 'S{n}'", f"s{n}") for n in range(start, start + 500)])
    _slice_us(process, client)
    without_us, ratios = [], []
    for _ in range(rounds):
        used: dict[bool, float] = {True: 0.0, False: 0.0}
        for is_sampling in (False, True, True, False):
            if is_sampling:
                process.send_signal(signal.SIGUSR1)
            used[is_sampling] += _slice_us(process, client) / 2
        without_us.append(used[False])
        ratios.append(used[True] / used[False] - 1)
    low, high = interval_of_median(ratios)
    process.send_signal(signal.SIGUSR2)
    assert process.stdout is not None
    own = float(process.stdout.readline()) / (2 * rounds * SLICE_S)
    return PressCost(statistics.median(without_us), statistics.median(ratios), low, high, own)


def _slice_us(process: subprocess.Popen[str], client: FrameClient) -> float:
    """Publish as fast as the broker answers; returns the processor time of a publication."""
    count, begin_s = 0, processor_s(process.pid)
    used_s = 0.0
    while used_s < SLICE_S:
        requests = []
        for _ in range(AT_ONCE):
            requests.append(
                Publish([b'{"symbol":"S%d"}' % (n * 37 % SUBSCRIPTIONS) for n in range(count, count + BATCH)])
            )
            count += BATCH
        client.ask_all(requests)
        used_s = processor_s(process.pid) - begin_s
    return used_s / count * 1e6


def interval_of_median(values: list[float]) -> tuple[float, float]:
    """The 95 % confidence interval, by ranks: nothing is assumed of how the values are spread."""
    ordered, count = sorted(values), len(values)
    rank = 0
    while sum(math.comb(count, below) for below in range(rank + 1)) / 2**count <= 0.025:
        rank += 1
    return ordered[max(0, rank - 1)], ordered[min(count - 1, count - rank)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve()
    else:
        cost = measure_press(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
        print(
            f"{cost.without_us:.1f} µs a publication; {cost.own:+.1%} by sampling itself, "
            f"{cost.ratio:+.1%} ({cost.low:+.1%} to {cost.high:+.1%}) in all"
        )
