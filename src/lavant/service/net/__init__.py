"""The network: listener, TLS, protocol detection, the native protocol; `http_server` speaks HTTP on uvicorn."""
