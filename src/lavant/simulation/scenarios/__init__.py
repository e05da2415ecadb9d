"""Whole systems in virtual time, one file each.

A file with a `SCENARIO` in this package is found by itself: `lavant sim list` shows it, `lavant sim run` runs it. How
one is written is told in `lavant.simulation.kernel`; `counter` is an example of everything.
"""
