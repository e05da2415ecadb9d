"""Queueing models, pure: predictions for a network of stations from rates and variabilities."""
