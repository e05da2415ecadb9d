"""The Spark engine: publications wait in logs, and a process of its own matches them on Spark."""
