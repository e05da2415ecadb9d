"""TLS on the port: everything that is spoken there is spoken through it."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import time
from pathlib import Path

import pytest
from tests.integration.certificates import write_certificate
from tests.integration.serving import WAIT_S_MAX, Served
from tests.integration.talking_http import Talker
from websockets.sync.client import connect

from lavant.broker.protocol.frames import GREETING_NUMBER, PREFACE, Hello, decode_answer
from lavant.broker.protocol.queues import Done
from lavant.core.frames import Frames, frame


def common_name(served: Served, context: ssl.SSLContext) -> str:
    """Of the certificate that the server shows."""
    with (
        socket.create_connection((served.host, served.port), timeout=WAIT_S_MAX) as plain,
        context.wrap_socket(plain, server_hostname=served.host) as secure,
    ):
        shown = secure.getpeercert()
        assert shown is not None
        return str(dict(part[0] for part in shown["subject"])["commonName"])  # type: ignore[misc]


def test_all_protocols_go_through_it_and_a_new_certificate_is_taken_at_a_signal(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "first")
    context = ssl.create_default_context(cafile=certificate)
    options = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    with Served(tmp_path / "data", *options) as server:
        assert server.line.startswith("listening at https://127.0.0.1:")
        with Talker(server, context=context) as talker:
            talker.subscribe("s", "a = 1")
            talker.publish({"a": 1})
            assert len(talker.receive("s", visibility_ms=0)) == 1
            listed = talker.ask(
                "POST", "/", b"{}", kind="application/x-amz-json-1.0", X_Amz_Target="AmazonSQS.ListQueues"
            )
            assert listed.json["QueueUrls"] == [f"https://127.0.0.1:{server.port}/000000000000/s"]
        with connect(f"wss://{server.host}:{server.port}/subscriptions/s/stream", ssl=context, proxy=None) as stream:
            assert json.loads(stream.recv(timeout=WAIT_S_MAX))["publication"]["a"] == 1
        with (
            socket.create_connection((server.host, server.port), timeout=WAIT_S_MAX) as plain,
            context.wrap_socket(plain, server_hostname=server.host) as secure,
        ):
            secure.sendall(PREFACE + bytes(frame(GREETING_NUMBER, Hello())))
            [(number, content)] = Frames().feed(secure.recv(1000))
            assert (number, decode_answer(content)) == (GREETING_NUMBER, Done())
        with socket.create_connection((server.host, server.port), timeout=WAIT_S_MAX) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"ok" not in plain.recv(1000)
        old = ssl.create_default_context(cafile=certificate)
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, OSError)):
            common_name(server, old)

        assert common_name(server, context) == "first"
        write_certificate(tmp_path, "second")
        server.process.send_signal(signal.SIGHUP)
        renewed = ssl.create_default_context(cafile=certificate)
        deadline_s = time.monotonic() + WAIT_S_MAX
        while True:
            try:
                assert common_name(server, renewed) == "second"
                break
            except ssl.SSLCertVerificationError:
                assert time.monotonic() < deadline_s
        assert server.stop() == 0
