"""Nets compiled to Python: the source that simulates a net, and the source that lists the successors of a marking."""
