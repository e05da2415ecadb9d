"""Faults from a seed: kinds, schedule, and frequency."""
