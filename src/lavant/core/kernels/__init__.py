"""Compiled kernels: how they are declared, kept on disk, and compiled ahead of use."""
