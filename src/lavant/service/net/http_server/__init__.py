"""The HTTP server: HTTP/1.1 and WebSocket connections on uvicorn. The only package that imports uvicorn.

Connections come in from `protocol_detection`, requests leave to the ASGI application of `http_dispatch`. uvicorn
parses, frames and speaks ASGI; subclasses of its protocols add deadlines, byte limits, notice of lost clients, and the
fast path of SQS. They use these internals of uvicorn, which may change with any version:

- `HttpToolsProtocol` and its callbacks, subclassed for deadlines and byte limits. Its `cycle`, `pipeline`, `tasks`,
  `flow`, `parser`, `headers`, `url` and `expect_100_continue` tell which request arrives, which is answered, and
  whether it may take the fast path; `_start_asgi_task` tells which one runs when others are pipelined behind it.
- `RequestResponseCycle`: `response_started`, `response_complete`, `keep_alive`, `disconnected`, `message_event`.
  `FastPathExchange` stands in for it, and a lost client ends it.
- `send_400_response`, which answers what the parser refuses, and the text that is logged before it.
- `STATUS_LINE`, for responses of the fast path.
- `ServerState`: `connections`, `tasks`, `default_headers`, `total_requests`, because Lavant runs no `uvicorn.Server`.
- `WebSocketsSansIOProtocol`: `conn`, `frames`, `curr_msg_data_type`, `read_paused`, `close_sent`, `app_state`,
  `handshake_initiated`, `handshake_complete`, and the methods overridden in `websockets`, because an invalid frame or
  an unusual close is no error of the server. `ClientDisconnected` tells the application that its client is gone.
"""

import uvicorn

from lavant.core.packages import VersionRange

UVICORN = VersionRange("uvicorn", (0, 54), (0, 55))

UVICORN.check(uvicorn.__version__)
