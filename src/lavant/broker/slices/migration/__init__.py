"""Slices on several hosts: the manager, the hosts, and the protocol by which a slice migrates between them."""
