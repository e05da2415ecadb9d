"""A simulated disk that takes its time, fills up, errs, and loses what was not synced."""
