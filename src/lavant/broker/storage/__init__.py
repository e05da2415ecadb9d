"""Durable storage: disks, the journal of commands, and the log of publications."""
