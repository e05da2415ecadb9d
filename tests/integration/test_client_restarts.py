"""Clients of a server that is killed and started again, that is busy, or that speaks through TLS."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
from tests.integration.serving import Served

from lavant import connect, connect_async
from lavant.client.connection.retries import NO_RETRIES, Retries
from lavant.client.subscriptions.notification import Notification
from lavant.core.errors import LavantError, MissingComponent

PUBLICATIONS = 3000
PATIENT = Retries(within_s=60)
WAIT_S = 60.0


class Stream:
    """Publishes numbers one by one, as fast as it can, and notes their ids."""

    def __init__(self, url: str) -> None:
        self.ids: dict[int, str] = {}
        self._client = connect(url, retries=PATIENT)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for(self, count: int) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while len(self.ids) < count:
            assert time.monotonic() < deadline_s
            assert self._thread.is_alive()
            time.sleep(0.005)

    def join(self) -> None:
        self._thread.join()
        assert len(self.ids) == PUBLICATIONS

    def _run(self) -> None:
        with self._client as client:
            for number in range(0, PUBLICATIONS, 10):
                ids = client.publish_many([{"n": number + i} for i in range(10)])
                self.ids.update(enumerate(ids, start=number))


def test_what_was_accepted_is_delivered_through_a_crash_in_the_middle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each publication enters the queue once; only deliveries may be repeated. At last the server stays away."""
    seen: dict[int, set[str]] = defaultdict(set)
    is_complete = threading.Event()

    def handle(notification: Notification) -> None:
        number = notification.attributes["n"]
        assert isinstance(number, int)
        seen[number].add(notification.id)
        if len(seen) == PUBLICATIONS:
            is_complete.set()

    with Served(tmp_path) as server, connect(server.url, retries=PATIENT) as client:
        client.publish({"n": -1})  # whatever is compiled is compiled now
        subscription = client.subscribe("n >= 0", name="all", handler=handle)
        stream = Stream(server.url)
        stream.wait_for(500)
        server.kill()
        with Served(tmp_path, port=server.port) as again:
            stream.join()
            assert is_complete.wait(WAIT_S)
            subscription.close()
            figures = client.queue("all").describe().figures
            assert (figures.visible, figures.in_flight) == (0, 0)
            assert figures.sent == PUBLICATIONS, "a repeated request is not done twice"
            with connect(again.url, retries=Retries(within_s=0.3)) as impatient:
                lonely = impatient.subscription("all")
                lonely.start(handle)
                impatient.subscribe("n > 0")
                again.wait_for_metric("lavant_waiting_receives", 1)
                again.kill()
                with pytest.raises(MissingComponent, match="no server answers"):
                    lonely.join()
    assert "could not be removed; its lease expires within 60 s" in caplog.text
    assert {number: [id] for number, id in stream.ids.items()} == {n: list(ids) for n, ids in seen.items()}


def test_everything_may_go_through_tls(tmp_path: Path) -> None:
    certificate, key = _certificate(tmp_path)
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with Served(None, *options) as server:
        url = f"lavants://127.0.0.1:{server.port}"
        with connect(url, ca_file=certificate) as client, client.subscribe("n > 0") as subscription:
            client.publish({"n": 1}, payload=bytes(200_000))
            [found] = subscription.notifications(count=1, timeout_s=WAIT_S)
            assert found.payload == bytes(200_000)
        with pytest.raises(MissingComponent, match=r"cannot be trusted: .*ca_file"):
            connect(url)
        with pytest.raises(MissingComponent, match="cannot be trusted"):
            asyncio.run(connect_async(url))
        with pytest.raises(LavantError):
            connect(f"lavant://127.0.0.1:{server.port}", retries=NO_RETRIES, timeout_s=2)


def _certificate(directory: Path) -> tuple[Path, Path]:
    """Its own authority, for this machine."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lavant")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    files = directory / "certificate.pem", directory / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files
