"""The Spark engine: publications are appended to logs, and a process of its own matches them on Spark."""
