"""Jobs as workflows over topics: which task follows which, and every job carried through to its one end."""

from lavant.broker.workflows.hub import Jobs
from lavant.broker.workflows.limits import UNLIMITED_JOBS, JobLimits
from lavant.broker.workflows.reading import convert_workflows, read_workflows

__all__ = ["UNLIMITED_JOBS", "JobLimits", "Jobs", "convert_workflows", "read_workflows"]
