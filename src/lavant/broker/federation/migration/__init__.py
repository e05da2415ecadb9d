"""Moves subscriptions with their durable queues between brokers: durable steps on both sides, and their driver."""
