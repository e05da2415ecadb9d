"""The process from which Spark forks Python workers, with everything they need already loaded.

A worker is forked in milliseconds with kernels, Arrow and matchers in memory. `gc.freeze` hides all of it from the
garbage collector: Spark collects garbage after every task, which otherwise costs more than a small batch.

Private: `pyspark.daemon`, whose `manager` runs after our imports, and `pyspark.worker`, imported before the fork.
`spark.python.daemon.module`, which names this module, is not documented either; without it, every worker imports for
itself.

Known on PySpark 4.2 and 4.3.
"""

from __future__ import annotations

import gc

from pyspark import daemon


def preload() -> None:
    """Import and run once what workers will run, so that compiled kernels are loaded before the fork."""
    import pyspark.worker  # noqa: F401, PLC0415

    import lavant.pipeline.operators.tasks  # noqa: F401, PLC0415
    from lavant.broker.warmup import BROKER_KERNELS  # noqa: PLC0415
    from lavant.core.kernels.warmup import warm_up  # noqa: PLC0415
    from lavant.pipeline.warmup import PIPELINE_KERNELS  # noqa: PLC0415

    warm_up([BROKER_KERNELS, PIPELINE_KERNELS])
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload()
    daemon.manager()
