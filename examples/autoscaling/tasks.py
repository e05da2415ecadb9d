"""The four tasks of the allocation paper's case study, in scaled time: a minute of the paper is a second here.

They sleep for as long as the tasks of the paper take: gamma distributed, with its rates and variabilities.
"""

import random
import time

import lavant

SERVICES = {"A": (4.2, 0.33), "B": (3.7, 0.5), "C": (6.7, 0.4), "D": (5.1, 0.5)}
"""Tasks that a consumer does in a second, and the squared coefficient of variation of their times."""


@lavant.task("A")
@lavant.task("B")
@lavant.task("C")
@lavant.task("D")
def sleep(task: lavant.Task) -> str:
    rate_per_s, scv = SERVICES[task.topic]
    chance = random.Random(task.key)  # the same task takes the same time, whoever does it
    duration_s = chance.gammavariate(1 / scv, scv / rate_per_s)
    time.sleep(duration_s)
    return f"{task.topic} took {duration_s:.3f} s"
