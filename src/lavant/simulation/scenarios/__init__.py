"""Scenarios: whole systems in virtual time, one file each.

A file with a `SCENARIO` in this package is found automatically: `lavant sim list` shows it, `lavant sim run` runs it.
`lavant.simulation.kernel` explains how to write one; `counter` is an example of everything.
"""
