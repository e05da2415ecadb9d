"""The vocabulary: values, ids, limits, errors and decisions that every other package speaks in."""
