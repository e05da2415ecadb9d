"""The world of virtual time: workloads from a seed, and later clock, network, disk and faults."""
