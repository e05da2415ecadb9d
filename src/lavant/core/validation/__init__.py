"""Checks of what people write: TOML files, with the line in every error, and values of which only a few are allowed."""
