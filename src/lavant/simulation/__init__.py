"""The world of virtual time: the kernel with its hosts, links, disks, clocks and faults, scenarios, and workloads."""
