"""What queues count, and what bounds them: statistics, memory, quotas and limits."""
