"""Executors that come and go: the manager, its state, the probes it reads, and a cluster on one machine."""
