"""What operators see: metrics at `/metrics`, and telemetry files."""
