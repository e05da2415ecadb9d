"""Publish/subscribe over HTTP: one file for each thing that can be done."""
