"""The bursty load of the allocation paper (Section VI-F) for a server that runs `resources.toml`, in scaled time.

Sixty jobs arrive at the low rates, 240 at the high ones. Prints what became of them, as JSON with --json.
"""

import argparse
import asyncio
import json
import random
import time
from typing import Any

import lavant
from lavant.core.addresses import QUEUES_URL

TYPES = ("type-1", "type-2", "type-3")
QUIET_PER_S, BUSY_PER_S = (0.5, 1.0, 0.5), (3.0, 3.5, 3.0)
SCV = (0.33, 0.5, 0.25)
QUIET_S, BUSY_S = 60 / sum(QUIET_PER_S), 240 / sum(BUSY_PER_S)
"""Long enough for 60 and 240 jobs."""


def arrivals(seed: int, quiet_s: float) -> list[tuple[float, str]]:
    """When jobs of which type come, in order; gamma distributed gaps."""
    found = []
    for place, job_type in enumerate(TYPES):
        chance = random.Random(f"{seed} {job_type}")
        time_s = 0.0
        while True:
            rate = (QUIET_PER_S if time_s < quiet_s else BUSY_PER_S)[place]
            gap_s = chance.gammavariate(1 / SCV[place], SCV[place] / rate)
            if time_s < quiet_s < time_s + gap_s:  # the rest of the gap passes at the new rate
                gap_s = quiet_s - time_s + (time_s + gap_s - quiet_s) * rate / BUSY_PER_S[place]
            time_s += gap_s
            if time_s >= quiet_s + BUSY_S:
                break
            found.append((time_s, job_type))
    return sorted(found)


async def submit_all(client: lavant.AsyncClient, seed: int, quiet_s: float) -> tuple[float, list[int]]:
    """When it began, and the numbers of the jobs."""
    begin_s, numbers = time.time(), []
    for due_s, job_type in arrivals(seed, quiet_s):
        await asyncio.sleep(max(0.0, begin_s + due_s - time.time()))
        numbers.append(await client.submit(job_type, f"due after {due_s:.3f} s"))
    return begin_s, numbers


async def run(url: str, seed: int, quiet_s: float) -> dict[str, Any]:
    async with await lavant.connect_async(url) as client:
        begin_s, numbers = await submit_all(client, seed, quiet_s)
        jobs = [await client.wait(number, timeout_s=60) for number in numbers]
    rows = [
        {
            "type": job.job_type,
            "state": job.state,
            "arrived_s": round(job.submitted_s - begin_s, 3),
            "response_s": round(job.ended_s - job.submitted_s, 3),
            "attempts": sum(len(task.attempts) for task in job.tasks),
        }
        for job in jobs
    ]
    return {"begin_s": begin_s, "burst_s": quiet_s, "jobs": rows}


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default=QUEUES_URL)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quiet", type=float, default=QUIET_S, help="seconds before the burst")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = asyncio.run(run(given.url, given.seed, given.quiet))
    if given.json:
        print(json.dumps(found))
        return
    jobs = found["jobs"]
    print(f"{len(jobs)} jobs, {sum(job['state'] == 'completed' for job in jobs)} completed")
    for start in range(0, int(given.quiet + BUSY_S) + 1, 5):
        taken = [job["response_s"] for job in jobs if start <= job["arrived_s"] < start + 5]
        print(f"{start:3d} to {start + 5:3d} s: {len(taken):3d} jobs, mean response {mean(taken):.2f} s")


if __name__ == "__main__":
    main()
