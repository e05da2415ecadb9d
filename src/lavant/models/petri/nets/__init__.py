"""Nets that come with Lavant, by name."""

from __future__ import annotations
