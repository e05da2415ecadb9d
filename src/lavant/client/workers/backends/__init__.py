"""The sources of tasks: a Lavant server, or RabbitMQ."""
