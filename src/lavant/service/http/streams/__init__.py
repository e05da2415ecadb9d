"""Streams over HTTP: server-sent events and WebSockets."""
