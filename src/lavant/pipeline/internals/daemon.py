"""The process from which Spark forks Python workers, with everything they need already loaded.

A worker is forked in milliseconds with kernels, Arrow and matchers in memory. `gc.freeze` hides all of it from the
garbage collector: Spark collects garbage after every task, which otherwise costs more than a small batch.

Every task begins with two small messages from Java, and TCP delays the second until the first is acknowledged, which
the receiver's system puts off for 40 ms. So workers acknowledge every read at once.

Private:

* `pyspark.daemon`: `manager`, which runs after our imports. `spark.python.daemon.module`, which names this module, is
  not documented either; without it, every worker imports for itself.
* `pyspark.worker`: `main`, which is wrapped to read from our socket. `spark.python.unix.domain.socket.enabled` avoids
  the delay publicly and is as fast, but on 4.2 a busy machine showed workers and daemons that ended: to write to a
  socket that Java has closed is an error there.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

import gc
import io
import os
import socket
from typing import IO, Any

from pyspark import daemon


class PromptReader(io.RawIOBase):
    """Reads from a TCP socket, and has every read acknowledged without delay."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self.is_tcp = self._socket.family != socket.AF_UNIX
        """Not with `spark.python.unix.domain.socket.enabled`."""

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._socket.fileno()

    def readinto(self, buffer: Any) -> int:
        count = self._socket.recv_into(buffer)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return count

    def close(self) -> None:
        self._socket.close()
        super().close()


def preload() -> None:
    """Import and run once what workers will run, so that compiled kernels are loaded before the fork."""
    import pyspark.worker  # noqa: PLC0415

    import lavant.pipeline.operators.tasks  # noqa: F401, PLC0415
    from lavant.broker.warmup import BROKER_KERNELS  # noqa: PLC0415
    from lavant.core.kernels.warmup import warm_up  # noqa: PLC0415
    from lavant.pipeline.warmup import PIPELINE_KERNELS  # noqa: PLC0415

    serve = pyspark.worker.main

    def main(infile: IO[bytes], outfile: IO[bytes]) -> None:
        reader = PromptReader(infile.fileno())
        with io.BufferedReader(reader) as prompt:
            serve(prompt if reader.is_tcp else infile, outfile)

    if hasattr(socket, "TCP_QUICKACK"):  # Linux only; other systems wait the 40 ms
        pyspark.worker.main = main
    warm_up([*BROKER_KERNELS, PIPELINE_KERNELS])
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload()
    daemon.manager()
