"""The network: listener, TLS, protocol detection, the native protocol, and HTTP on uvicorn."""
