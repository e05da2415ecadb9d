"""The clients of a server, for publishers, subscribers, consumers and workers; keys and encryption.

Calls of an application come in, requests to a server leave. The server imports nothing from here.
"""
