"""The virtual-time world: the kernel with its hosts, links, disks, clocks and faults, scenarios, and workloads."""
