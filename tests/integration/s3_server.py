"""moto's S3 server, with writes one after the other: `python s3_server.py PORT`.

A conditional put of S3 is atomic. moto looks for the object first and stores it later, so with several threads two puts
could both succeed.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple


class AtomicWrites:
    """An application whose requests that write wait for each other."""

    def __init__(self, application: DomainDispatcherApplication) -> None:
        self._application = application
        self._writes = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._application(environ, start_response)
        with self._writes:
            return self._application(environ, start_response)


if __name__ == "__main__":
    application = AtomicWrites(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=MotoRequestHandler)
