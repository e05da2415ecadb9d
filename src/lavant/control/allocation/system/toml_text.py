"""Writes a network as a system file, which `SystemFile` reads and people edit."""

from __future__ import annotations

import json

from lavant.control.allocation.system.toml_file import SECONDS
from lavant.models.network import ModelJobType, Network, Topic


def system_text(network: Network, *, rates_per: str = "second", remark: str = "") -> str:
    """The network with default costs and limits, without a goal."""
    parts = [f"# {line}".rstrip() for line in remark.splitlines()]
    parts += ["", f'rates_per = "{rates_per}"'] if parts else [f'rates_per = "{rates_per}"']
    parts += [_topic(topic, SECONDS[rates_per]) for topic in network.topics]
    parts += [_job(job, SECONDS[rates_per]) for job in network.jobs]
    return "\n".join(parts) + "\n"


def _topic(topic: Topic, rate_s: float) -> str:
    return (
        f"\n[[topic]]\nname = {_quoted(topic.name)}\nservice_rate = {topic.service_rate_per_s * rate_s:.6g}\n"
        f"service_scv = {topic.service_scv:.4g}"
    )


def _job(job: ModelJobType, rate_s: float) -> str:
    head = (
        f"\n[[job]]\nname = {_quoted(job.name)}\narrival_rate = {job.arrival_rate_per_s * rate_s:.6g}\n"
        f"arrival_scv = {job.arrival_scv:.4g}\n"
    )
    if job.is_route:
        return head + f"route = [{', '.join(_quoted(task.topic) for task in job.tasks)}]"
    lines = [
        f"tasks.{_quoted(task.name)} = {{topic = {_quoted(task.topic)}, "
        f"after = [{', '.join(map(_quoted, task.after))}]}}"
        for task in job.tasks
    ]
    return head + "\n".join(lines)


def _quoted(text: str) -> str:
    """TOML's basic strings are JSON's, if characters beyond ASCII are not escaped."""
    return json.dumps(text, ensure_ascii=False)
