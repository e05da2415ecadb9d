"""Front-ends of stream delivery: server-sent events and WebSockets."""
