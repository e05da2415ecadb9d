"""Numba kernels: declaration, cache on disk, and warm-up."""
