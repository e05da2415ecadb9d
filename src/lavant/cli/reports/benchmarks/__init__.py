"""The quick benchmarks of `lavant bench`."""
