"""Runs the steps of deploy/Dockerfile without Docker and without a registry, and starts the image's server.

    python3 tools/image.py DIRECTORY          as root, with debootstrap and `make setup`

Debian's Python, from debootstrap, stands for the base image, and uv of `.venv` for that of its own image. Each `RUN` is
run in a chroot. The server is then started as the image's user, in namespaces of its own and with a read-only root, as
deploy/kubernetes/server.yaml has it, and must become ready. DIRECTORY is kept: remove it afterwards.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SUITE = "trixie"
PACKAGES = "python3,python3-venv,ca-certificates"
PORT, WAIT_S_MAX = 7324, 60.0
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Of this machine, which may reach packages through a proxy."""
PROBE = f"""
import http.client, time
began_s = time.monotonic()
while True:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", {PORT}, timeout=5)
        connection.request("GET", "/readyz")
        if connection.getresponse().status == 200:
            break
    except OSError:
        pass
    assert time.monotonic() - began_s < {WAIT_S_MAX}, "the server does not become ready"
    time.sleep(0.05)
listening = [line.split()[1] for line in open("/proc/net/tcp").readlines()[1:] if line.split()[3] == "0A"]
assert "00000000:{PORT:04X}" in listening, listening
print(f"ready after {{time.monotonic() - began_s:.1f}} s, at all addresses")
"""


class DockerStep(NamedTuple):
    instruction: str
    argument: str


class Stage:
    """One stage of the build: a root directory, and what its instructions have set."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root"}
        self.directory = "/"
        self.user = "root"
        self.entry: list[str] = []
        self.command: list[str] = []

    def path(self, name: str) -> Path:
        """Where a name of the image is on this machine."""
        return self.root / str(Path(self.directory, name)).lstrip("/")

    def run(self, script: str, *, mounts: str = "", is_networked: bool = True) -> None:
        """Runs a script in a chroot with its own mounts, processes and, on demand, network."""
        environment = shlex.join(f"{name}={value}" for name, value in self.environment.items())
        inside = f"cd {shlex.quote(self.directory)} && {script}"
        chroot = f"chroot --userspec={self.user} {self.root} env -i {environment} sh -c {shlex.quote(inside)}"
        usual = f"mount -t proc proc {self.root}/proc && mount -t tmpfs tmpfs {self.root}/tmp"
        network = [] if is_networked else ["--net"]
        isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *network]
        subprocess.run([*isolated, "sh", "-c", f"{usual} && {mounts} exec {chroot}"], check=True)


def read_dockerfile(text: str) -> Iterator[DockerStep]:
    """
    >>> [step.argument for step in read_dockerfile("# base\\nFROM a AS b\\nRUN c \\\\\\n  d\\n")]
    ['a AS b', 'c   d']
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        instruction, _, argument = line.partition(" ")
        yield DockerStep(instruction, argument.strip())


def main(directory: Path) -> None:
    base = directory / "base"
    if not base.exists():
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(base)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    serve(build(directory, base))


def build(directory: Path, base: Path) -> Stage:
    """Runs all steps, and returns the last stage."""
    stages: dict[str, Stage] = {}
    stage = Stage(base)
    for instruction, argument in read_dockerfile((ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")):
        print(instruction, argument[:100], flush=True)
        match instruction:
            case "FROM":
                name = argument.partition(" AS ")[2] or "image"
                stage = stages[name] = _stage(base, directory / name)
            case "COPY":
                _copy(stage, stages, argument.split())
            case "RUN":
                stage.run(argument, mounts=_cache_of_uv(stage))
            case "ENV" | "ARG":
                _set(stage.environment, argument)
            case "WORKDIR":
                stage.directory = argument
                stage.path(".").mkdir(parents=True, exist_ok=True)
            case "USER":
                stage.user = argument
            case "ENTRYPOINT":
                stage.entry = json.loads(argument)
            case "CMD":
                stage.command = json.loads(argument)
            case "VOLUME" | "EXPOSE":
                pass
            case _:
                raise SystemExit(f"deploy/Dockerfile has {instruction}, which this tool does not know")
    return stage


def serve(image: Stage) -> None:
    """Starts the image's own command with API keys, and waits in the same namespaces until it is ready."""
    data, keys = image.root / "var/lib/lavant", "/var/lib/lavant/keys.toml"
    image.run(f"{image.entry[0]} keys new probe --scope publish --file {keys} >/dev/null")
    server = shlex.join([*image.entry, *image.command, f"--keys-file={keys}"])
    probe = shlex.join(["/opt/lavant/bin/python", "-c", PROBE])
    script = f"id -u; {server} & server=$!; {probe}; result=$?; kill $server; wait $server; exit $result"
    own = f"mount --rbind {image.root} {image.root} && mount --bind {data} {data} && "
    read_only = f"mount -o remount,bind,ro {image.root} && ip link set lo up && "
    began_s = time.monotonic()
    image.run(script, mounts=own + read_only, is_networked=False)
    print(f"{time.monotonic() - began_s:.1f} s from start to stop")


def _stage(base: Path, root: Path) -> Stage:
    subprocess.run(["rm", "-rf", str(root)], check=True)
    subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(root)], check=True)
    for name in (CERTIFICATES, Path("/etc/resolv.conf"), Path("/etc/hosts")):
        if name.exists():
            (root / str(name).lstrip("/")).write_bytes(name.read_bytes())
    stage = Stage(root)
    stage.environment |= {"SSL_CERT_FILE": str(CERTIFICATES), "UV_PYTHON_DOWNLOADS": "never"}
    return stage


def _cache_of_uv(stage: Stage) -> str:
    cache = Path(os.environ.get("UV_CACHE_DIR", Path.home() / ".cache/uv"))
    inside = stage.root / "root/.cache/uv"
    return f"mkdir -p {cache} {inside} && mount --bind {cache} {inside} && "


def _copy(stage: Stage, stages: dict[str, Stage], words: list[str]) -> None:
    origin = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else ""
    *names, target = words
    if "/uv:" in origin:
        found = [ROOT / ".venv/bin/uv"]
    elif origin:
        found = [stages[origin].root / name.lstrip("/") for name in names]
    else:
        found = [ROOT / name for name in names]
    place = stage.path(target)
    place.parent.mkdir(parents=True, exist_ok=True)
    into = [f"{place}/"] if target.endswith("/") else ["-T", str(place)]
    subprocess.run(["cp", "-a", *map(str, found), *into], check=True)


def _set(environment: dict[str, str], argument: str) -> None:
    for word in shlex.split(argument):
        name, _, value = word.partition("=")
        environment[name] = re.sub(r"\$(\w+)", lambda found: environment.get(found[1], ""), value)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
