"""Commands for jobs, workflows and workers."""
