"""Output of larger commands: charts, plans, `top`, `doctor`, benchmarks, demonstration."""
