"""What PRESS costs a broker: processor time of a publication while a session samples, against without.

python -m tests.bench.press [PAIRS]

In one durable broker with 10,000 subscriptions a signal starts a sample, in every second slice of work. A sample is
what a session takes: the list of subscriptions that can move, bits of 50 publications, and the covering set of a peer,
1,000 filters, matched with them.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.integration.frames import FrameClient

from lavant.broker.protocol.subscriptions import Publish, Subscribe

SUBSCRIPTIONS = 10_000
COVERING = 1000
BATCH = 10
AT_ONCE = 20
"""Requests to publish on their way together."""
SLICE_S = 1.2
"""Longer than it takes until a complete sample is noticed."""
PAIRS = 12


class PressCost(NamedTuple):
    without_us: float
    """Processor time of a publication."""
    with_us: float

    @property
    def ratio(self) -> float:
        return self.with_us / self.without_us - 1


def serve() -> None:
    """In the process that is measured: a signal starts a sample."""
    from lavant.control.balancing.values import StartSampling
    from lavant.service.federation.balancing.balancer import FederationBalancer
    from lavant.service.federation.balancing.press_sampler import covering_text
    from lavant.service.federation.settings import FederationSettings
    from lavant.service.runtime import process
    from lavant.service.runtime.settings import ServeSettings

    covering = {"B2": tuple(covering_text("", f"symbol = 'S{number}'") for number in range(COVERING))}
    sampling = StartSampling(session="bench", covering=covering, publications=50, timeout_ms=30_000)

    def start(self: FederationBalancer) -> None:
        original(self)
        loop = self._links.service.loop
        signal.signal(signal.SIGUSR1, lambda *_: loop.call_soon_threadsafe(self._start_sampling, sampling))

    original: Any = FederationBalancer.start
    FederationBalancer.start = start  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as place:
        settings = ServeSettings(port=0, data=Path(place) / "data", federation=FederationSettings(name="B1"))
        process.run(settings, lambda started: print(started.port, flush=True))


def measure_press(pairs: int = PAIRS) -> PressCost:
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.press", "serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        with FrameClient(int(process.stdout.readline())) as client:
            return _measure(process, client, pairs)
    finally:
        process.terminate()
        process.wait()


def _measure(process: subprocess.Popen[str], client: FrameClient, pairs: int) -> PressCost:
    for start in range(0, SUBSCRIPTIONS, 500):
        client.ask_all([Subscribe(f"symbol = 'S{n}'", f"s{n}") for n in range(start, start + 500)])
    _work(client)
    used: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * pairs):
        is_sampling = number % 4 in (1, 2)  # without, with; with, without; and so forth
        before_s = _used_s(process.pid)
        if is_sampling:
            process.send_signal(signal.SIGUSR1)
        count = _work(client)
        used[is_sampling].append((_used_s(process.pid) - before_s) / count)
    return PressCost(statistics.median(used[False]) * 1e6, statistics.median(used[True]) * 1e6)


def _work(client: FrameClient) -> int:
    """Publish as fast as the broker answers; returns how many."""
    count, until_s = 0, time.monotonic() + SLICE_S
    while time.monotonic() < until_s:
        requests = []
        for _ in range(AT_ONCE):
            requests.append(
                Publish([b'{"symbol":"S%d"}' % (n * 37 % SUBSCRIPTIONS) for n in range(count, count + BATCH)])
            )
            count += BATCH
        client.ask_all(requests)
    return count


def _used_s(process: int) -> float:
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve()
    else:
        cost = measure_press(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
        print(f"{cost.without_us:.1f} µs a publication, {cost.with_us:.1f} µs while it samples: {cost.ratio:+.1%}")
