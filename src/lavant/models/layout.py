"""A network as arrays for the kernels: tasks by depth, so that one sweep in their order follows every job."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lavant.models.network import Network

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class NetworkLayout(NamedTuple):
    """The paths of jobs, without rates. A task is the number of a visit of a job type to a topic."""

    task_job: Numbers
    task_topic: Numbers
    before_start: Numbers
    """Predecessors of task t: `before[before_start[t]:before_start[t + 1]]`."""
    before: Numbers


def layout_of(network: Network) -> NetworkLayout:
    """The structure of a network.

    >>> from lavant.models.network import ModelJobType, Topic
    >>> job = ModelJobType.along(["A", "B", "A"], name="1", arrival_rate_per_s=1.0)
    >>> layout_of(Network(topics=(Topic(name="A", service_rate_per_s=3.0), Topic(name="B", service_rate_per_s=2.0)),
    ...                   jobs=(job,))).task_topic.tolist()
    [0, 1, 0]
    """
    topic_number = {name: number for number, name in enumerate(network.topic_names)}
    by_depth = sorted(
        (job.depths[task.name], number, place)
        for number, job in enumerate(network.jobs)
        for place, task in enumerate(job.tasks)
    )
    visits = [(number, network.jobs[number].tasks[place]) for _, number, place in by_depth]
    task_number = {(number, task.name): index for index, (number, task) in enumerate(visits)}
    before = [[task_number[number, name] for name in task.after] for number, task in visits]
    return NetworkLayout(
        task_job=np.array([number for number, _ in visits], np.int64),
        task_topic=np.array([topic_number[task.topic] for _, task in visits], np.int64),
        before_start=np.cumsum([0, *map(len, before)], dtype=np.int64),
        before=np.array([task for tasks in before for task in tasks], np.int64),
    )
