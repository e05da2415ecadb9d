"""Settings of a broker in a federation."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import msgspec

from lavant.broker.federation.routes.roles import BrokerRole
from lavant.broker.federation.session import FederationConfig
from lavant.broker.federation.state import LinkLimits
from lavant.broker.protocol.queue_config import SECOND_MS
from lavant.core.addresses import SECURE, Address, is_loopback
from lavant.core.errors import InvalidValue
from lavant.service.federation.balancing.settings import BalancingSettings
from lavant.service.runtime.limits import ServiceLimits

NEIGHBOURS_MAX = 64

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")


class FederationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A broker with a name accepts links, and opens one to each address in `joins`."""

    name: str
    joins: tuple[Address, ...] = ()
    key: str = ""
    """Of the scope broker, for the links that this broker opens."""
    role: BrokerRole = BrokerRole.AUTO
    requires_advertisements: bool = False
    """Publishers must advertise what they publish."""
    address: Address | None = None
    """Where clients connect; by default where the broker listens."""
    ca_file: Path | None = None
    """Certificates to trust, for `joins` with TLS."""
    balancing: BalancingSettings = BalancingSettings()

    def __post_init__(self) -> None:
        check_name(self.name)
        if len(self.joins) > NEIGHBOURS_MAX:
            raise InvalidValue(f"--join is given {len(self.joins)} times, at most {NEIGHBOURS_MAX} are allowed")
        for address in self.joins:
            if self.joins.count(address) > 1:
                raise InvalidValue(f"--join {address} is given twice; remove one")
            if not is_loopback(address.host) and not (address.is_secure and self.key):
                raise InvalidValue(
                    f"--join {address} leaves this machine, which needs TLS and a key: write {SECURE}://…, and give "
                    "--join-key, a key that `lavant keys new --scope broker` made for the keys file of that broker"
                )
        if self.ca_file is not None and not any(address.is_secure for address in self.joins):
            raise InvalidValue(f"--join-ca-file is for --join {SECURE}://… (TLS), and there is none")

    def tls(self) -> ssl.SSLContext | None:
        """For links that this broker opens with TLS, if any. Raises if the certificates cannot be read."""
        if not any(address.is_secure for address in self.joins):
            return None
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise InvalidValue(
                f"--join-ca-file {self.ca_file} cannot be read: {error}; it holds certificates in PEM"
            ) from None


def federation_config(settings: FederationSettings, limits: ServiceLimits, *, identity: str) -> FederationConfig:
    """Settings of the pure machine."""
    return FederationConfig(
        name=settings.name,
        identity=identity,
        role=settings.role,
        requires_advertisements=settings.requires_advertisements,
        limits=LinkLimits(
            neighbours_max=NEIGHBOURS_MAX,
            bytes_max=limits.link_waiting_bytes_max,
            age_ms_max=round(limits.link_waiting_s_max * SECOND_MS),
        ),
        window_bytes=limits.link_window_bytes,
        probe_ms=round(limits.link_probe_s * SECOND_MS),
        probe_timeout_ms=round(limits.link_silent_s_max * SECOND_MS),
    )


def check_name(name: str) -> None:
    """Raises unless it can be the name of a broker."""
    if _NAME.fullmatch(name) is None:
        raise InvalidValue(f"a broker's name consists of 1 to 80 letters, digits and any of _ - . (not {name[:90]!r})")
