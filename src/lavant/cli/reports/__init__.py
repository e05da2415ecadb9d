"""What commands show: charts, plans, `top`, `doctor`, benchmarks and the demonstration."""
