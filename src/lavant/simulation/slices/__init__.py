"""Slices on simulated hosts: the machines of `lavant.broker.slices` with links that lose and hosts that crash while
slices move, and an oracle for what must come out."""
