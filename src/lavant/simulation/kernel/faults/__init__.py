"""Faults from a seed: kinds, schedule, and how many of each."""
