"""Slices on simulated hosts: the machines of `lavant.broker.slices` over lossy links, hosts that crash while slices
move, and an oracle.
"""
