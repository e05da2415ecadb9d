"""Connections to a server: its address, frames over sockets, calls, and retries when the server does not answer."""
