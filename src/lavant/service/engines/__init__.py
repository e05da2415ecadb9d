"""Engines find the queues that a publication goes to: `local` in this process, `spark` on a cluster (AP, M, EP)."""
