"""Signatures of requests to webhooks, as Standard Webhooks has them, so that receivers can use its libraries.

    webhook-id: 42
    webhook-timestamp: 1772271000
    webhook-signature: v1,base64(HMAC-SHA256(secret, "42.1772271000." + body))

The id is the same in each attempt, the time is that of the attempt. See <https://www.standardwebhooks.com>.
"""

from __future__ import annotations

import base64
import binascii
import hmac

SECRET_PREFIX = "whsec_"
"""Before a secret that is written in base64; others are taken as they are."""


def signature(secret: str, id: str, time_s: int, body: bytes) -> str:
    """
    >>> secret, id = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
    >>> signature(secret, id, 1614265330, b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    content = f"{id}.{time_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(_key(secret), content, "sha256")).decode()


def _key(secret: str) -> bytes:
    if secret.startswith(SECRET_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            pass
    return secret.encode()
