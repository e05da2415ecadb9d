"""Trials of placement policies in virtual time: load curves, a small cluster, and the figures of a trial."""
