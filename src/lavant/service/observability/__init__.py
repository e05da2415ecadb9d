"""Observability: metrics at `/metrics`, and telemetry files."""
