"""Protection against foreign web pages: DNS rebinding and cross-site requests.

A browser sends requests to a server on the same machine or network on behalf of any page it shows. Every HTTP request
and WebSocket of every port passes this guard before it is routed and before its body is read:

    request ──► Host one of ours? ──► Origin, Sec-Fetch-Site of our own pages? ──► application
                     │ no: 421              │ no: 403

`hosts` has the names of the server, `rules` the refusals and the ASGI middleware.
"""

from lavant.service.auth.browser_guard.hosts import HostList, is_address
from lavant.service.auth.browser_guard.rules import BrowserGuard, Guarded

__all__ = ["BrowserGuard", "Guarded", "HostList", "is_address"]
