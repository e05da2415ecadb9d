"""Address and credentials of a cluster's API: from a pod's service account, or from a kubeconfig file.

A service account is a directory with the token, which rotates and so is read for each request, the cluster's
certificate, and the namespace.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from lavant.core.errors import InvalidValue, MissingComponent
from lavant.core.packages import named_extras

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FILE_BYTES_MAX = 1 << 20


class ClusterAccess(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    """https://HOST:PORT; http:// for `kubectl proxy`."""
    namespace: str = "default"
    token: str = ""
    token_file: Path | None = None
    """Takes precedence over `token`."""
    context: Any = None
    """An `ssl.SSLContext`; None for http."""

    def bearer(self) -> str:
        """The token for one request."""
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise MissingComponent(f"the token of the cluster, {self.token_file}, cannot be read: {error}") from None


def find_access(
    kubeconfig: str = "",
    context: str = "",
    *,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClusterAccess:
    """From the given kubeconfig, else the pod's service account, else `KUBECONFIG`, else `~/.kube/config`."""
    if not kubeconfig and "KUBERNETES_SERVICE_HOST" in environment:
        return _of_pod(environment, service_account)
    path = Path(kubeconfig or environment.get("KUBECONFIG", "~/.kube/config")).expanduser()
    if not path.is_file():
        raise MissingComponent(
            f"this is not a pod of a cluster, and there is no kubeconfig {path}; set its path with kubeconfig = …"
        )
    return read_kubeconfig(path, context)


def _of_pod(environment: Mapping[str, str], directory: Path) -> ClusterAccess:
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        namespace = (directory / "namespace").read_text(encoding="ascii").strip()
        tls = ssl.create_default_context(cafile=directory / "ca.crt")
    except OSError as error:
        raise MissingComponent(
            f"the pod has no service account in {directory} ({error.strerror}); its manifest needs "
            "serviceAccountName, and automountServiceAccountToken must not be false"
        ) from None
    shown = f"[{host}]" if ":" in host else host
    return ClusterAccess(
        url=f"https://{shown}:{port}", namespace=namespace, token_file=directory / "token", context=tls
    )


def read_kubeconfig(path: Path, context: str = "") -> ClusterAccess:
    """Supports tokens, token files and client certificates, but no programs that log in interactively."""
    tables = _parsed(path)
    chosen = context if context else tables.get("current-context", "")
    if not chosen:
        raise InvalidValue(f"{path} has no current-context; choose one with context = …")
    use = _named(tables, "contexts", "context", chosen, path)
    cluster = _named(tables, "clusters", "cluster", use.get("cluster", ""), path)
    user = _named(tables, "users", "user", use.get("user", ""), path) if use.get("user") else {}
    url = str(cluster.get("server", ""))
    if urlsplit(url).scheme not in {"http", "https"}:
        raise InvalidValue(f"{path}: cluster {use.get('cluster')!r} has no server https://…, but {url!r}")
    for way in ("exec", "auth-provider", "username"):
        if way in user:
            raise InvalidValue(
                f"{path}: user {use['user']!r} logs in with {way}; make a token for a service account "
                "(`kubectl create token`), or let `kubectl proxy` log in and name http://127.0.0.1:8001 as server"
            )
    token_file = user.get("tokenFile")
    return ClusterAccess(
        url=url.rstrip("/"),
        namespace=use.get("namespace", "default"),
        token=user.get("token", ""),
        token_file=None if token_file is None else path.parent / token_file,
        context=_tls(cluster, user, path) if url.startswith("https") else None,
    )


def _parsed(path: Path) -> dict[str, Any]:
    with named_extras():
        import yaml  # noqa: PLC0415  an extra
    try:
        tables = yaml.safe_load(path.read_bytes()[:FILE_BYTES_MAX])
    except (OSError, yaml.YAMLError) as error:
        raise InvalidValue(f"the kubeconfig {path} cannot be read: {error}") from None
    if not isinstance(tables, dict):
        raise InvalidValue(f"{path} is not a kubeconfig")
    return tables


def _named(tables: dict[str, Any], many: str, one: str, name: str, path: Path) -> dict[str, Any]:
    for entry in tables.get(many) or []:
        if entry.get("name") == name:
            found: dict[str, Any] = entry.get(one) or {}
            return found
    raise InvalidValue(f"{path} has no {one} {name!r}")


def _tls(cluster: dict[str, Any], user: dict[str, Any], path: Path) -> ssl.SSLContext:
    if cluster.get("insecure-skip-tls-verify"):
        raise InvalidValue(f"{path} says not to check the cluster's certificate; give certificate-authority instead")
    try:
        authority = _pem(cluster, "certificate-authority", path)
        tls = ssl.create_default_context(cadata=None if authority is None else authority.decode("ascii"))
        certificate, key = _pem(user, "client-certificate", path), _pem(user, "client-key", path)
        if certificate is not None and key is not None:
            with tempfile.NamedTemporaryFile() as file:  # readable by this user only; ssl takes file names only
                file.write(certificate + b"\n" + key)
                file.flush()
                tls.load_cert_chain(file.name)
    except (OSError, ValueError, binascii.Error) as error:
        raise InvalidValue(f"{path}: a certificate cannot be read: {error}") from None
    return tls


def _pem(table: dict[str, Any], name: str, path: Path) -> bytes | None:
    """Inline, or in a file next to it."""
    if f"{name}-data" in table:
        return base64.b64decode(table[f"{name}-data"], validate=True)
    return (path.parent / table[name]).read_bytes() if name in table else None
