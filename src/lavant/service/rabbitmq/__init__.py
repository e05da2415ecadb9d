"""The RabbitMQ bridge: tasks travel to workers through RabbitMQ, while jobs stay in Lavant."""
