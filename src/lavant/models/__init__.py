"""Predictions, pure: what a queueing network will do, from rates and variabilities alone."""
