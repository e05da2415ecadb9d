"""Where a cluster is, and who we are there."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.certificates import write_certificate

from lavant.core.errors import InvalidValue, MissingComponent
from lavant.service.autoscaling.allocators.kubernetes import deployment_names
from lavant.service.autoscaling.allocators.kubernetes_access import find_access, read_kubeconfig


def kubeconfig(path: Path, *, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    tables = {
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "work"}},
            {"name": "bare", "context": {"cluster": "c"}},
            {"name": "broken", "context": {"cluster": "gone", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(tables))
    return path


def test_a_pod_has_its_service_account(tmp_path: Path) -> None:
    certificate, _ = write_certificate(tmp_path)
    (tmp_path / "ca.crt").write_bytes(certificate.read_bytes())
    (tmp_path / "namespace").write_text("lavant\n")
    (tmp_path / "token").write_text("first\n")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = find_access(environment=environment, service_account=tmp_path)
    assert (found.url, found.namespace, found.bearer()) == ("https://[fd00::1]:6443", "lavant", "first")
    assert found.context.verify_mode == ssl.CERT_REQUIRED
    (tmp_path / "token").write_text("second")
    assert found.bearer() == "second"


def test_a_pod_without_a_service_account_is_told_what_its_manifest_needs(tmp_path: Path) -> None:
    with pytest.raises(MissingComponent, match="automountServiceAccountToken must not be false"):
        find_access(environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, service_account=tmp_path)


def test_a_kubeconfig_that_is_named_wins_over_the_pod(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", cluster={"server": "http://127.0.0.1:8001/"}, user={})
    found = find_access(str(path), environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, service_account=tmp_path)
    assert (found.url, found.namespace, found.bearer(), found.context) == ("http://127.0.0.1:8001", "work", "", None)
    assert find_access(environment={"KUBECONFIG": str(path)}).url == found.url
    assert read_kubeconfig(path, "bare").namespace == "default"


def test_certificates_are_read_inline_and_from_files(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    inline = {"certificate-authority-data": base64.b64encode(certificate.read_bytes()).decode()}
    files = {"client-certificate": certificate.name, "client-key": key.name, "tokenFile": "token"}
    (tmp_path / "token").write_text("t")
    path = kubeconfig(tmp_path / "config", cluster={"server": "https://c:6443", **inline}, user=files)
    found = read_kubeconfig(path)
    assert found.bearer() == "t"
    assert [each["subject"] for each in found.context.get_ca_certs()]
    assert found.context.check_hostname


@pytest.mark.parametrize(
    ("cluster", "user", "context", "said"),
    [
        ({}, {}, "", "has no server https://"),
        ({"server": "https://c"}, {"exec": {"command": "aws"}}, "", "logs in with exec; make a token"),
        ({"server": "https://c", "insecure-skip-tls-verify": True}, {}, "", "not to check the cluster's certificate"),
        ({"server": "https://c", "certificate-authority-data": "%%"}, {}, "", "a certificate cannot be read"),
        ({"server": "https://c", "certificate-authority": "gone.crt"}, {}, "", "a certificate cannot be read"),
        ({"server": "https://c"}, {}, "nowhere", "has no context 'nowhere'"),
        ({"server": "https://c"}, {}, "broken", "has no cluster 'gone'"),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_said(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], context: str, said: str
) -> None:
    with pytest.raises(InvalidValue, match=said):
        read_kubeconfig(kubeconfig(tmp_path / "config", cluster=cluster, user=user), context)


@pytest.mark.parametrize("text", ["", "- a", "current-context: [", "{}"])
def test_what_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(InvalidValue, match="config"):
        read_kubeconfig(tmp_path / "config")


def test_without_a_cluster_it_is_said_where_one_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(MissingComponent, match=r"there is no kubeconfig .*gone"):
        find_access(environment={"KUBECONFIG": str(tmp_path / "gone")})


@pytest.mark.parametrize(
    ("topics", "pattern", "said"),
    [
        ({"A": "", "a": ""}, "w-{topic}", "would share the Deployment 'w-a'"),
        ({"A": "b", "B": "b"}, "w-{topic}", "would share"),
        ({"A_": ""}, "w-{topic}", "small letters"),
        ({"A": "x" * 64}, "w-{topic}", "at most 63"),
        ({"A": ""}, "workers", "must have {topic} in it"),
    ],
)
def test_names_that_a_cluster_does_not_have_are_refused(topics: dict[str, str], pattern: str, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        deployment_names(topics, pattern)
