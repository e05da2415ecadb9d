"""Runs the steps of a Dockerfile without Docker and without a registry, and uses the image that they make.

    python3 tools/image.py DIRECTORY [deploy/Dockerfile]
    python3 tools/image.py DIRECTORY deploy/spark.Dockerfile --python PREFIX

As root, with debootstrap and `make setup`. Stand-ins for what a registry would deliver are Debian's Python for Python's
image, Debian's Java with the Spark of `.venv` for Spark's, uv of `.venv`, and for the Python that uv downloads the one
installed at PREFIX (which takes patchelf). Each `RUN` is run in a chroot.

* deploy/Dockerfile: the server is started as the image's user, in namespaces of its own and with a read-only root, as
  deploy/kubernetes/server.yaml has it, and must become ready.
* deploy/spark.Dockerfile: a standalone cluster and a driver are started likewise, and must match publications.

DIRECTORY is kept: remove it afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SUITE = "trixie"
PACKAGES = ("python3", "python3-venv", "ca-certificates")
SPARK_PACKAGES = ("openjdk-21-jre-headless",)
SPARK_USER = 185
"""Of Apache's image."""
SPARK_PARTS = ("bin", "sbin", "jars")
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


SPARK_PROBE = r"""
set -e
mkdir /tmp/probe && cd /tmp/probe
export LAVANT_CACHE=/tmp/probe/cache XDG_CACHE_HOME=/tmp/probe SPARK_LOCAL_IP=127.0.0.1 SPARK_NO_DAEMONIZE=1
master=spark://127.0.0.1:7077
class=/opt/spark/bin/spark-class
$class org.apache.spark.deploy.master.Master --host 127.0.0.1 --port 7077 --webui-port 0 >master.log 2>&1 &
$class org.apache.spark.deploy.worker.Worker --host 127.0.0.1 --cores 2 --memory 2g --work-dir /tmp/probe/work $master \
    >worker.log 2>&1 &
echo '{"id": 1, "filter": "a = 1"}' >subscriptions.jsonl
echo '{"@id": "p", "a": 1}' >publications.jsonl
id -u
try=0
until (: </dev/tcp/127.0.0.1/7077) 2>/dev/null || [ $((try += 1)) -gt 300 ]; do sleep 0.2; done
lavant spark check --master $master --conf spark.executor.memory=600m
lavant stream --master $master --conf spark.executor.memory=600m \
    --subscriptions subscriptions.jsonl --input publications.jsonl --output out
python -c "
from lavant.pipeline.stream.sinks import read_notifications
[row] = read_notifications('out/notifications').to_pylist()
print(row)
assert (row['id'], row['subscriptions']) == ('p', [1])"
kill %1 %2
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("dockerfile", nargs="?", default="deploy/Dockerfile")
    parser.add_argument("--python", type=Path, metavar="PREFIX")
    given = parser.parse_args()
    image = build(given.directory.resolve(), ROOT / given.dockerfile, given.python)
    if image.entry:
        serve(image)
    else:
        match_on_spark(image)


def base_image(directory: Path, name: str) -> Path:
    """The root directory that stands for an image of a registry."""
    root = directory / "base"
    if not root.exists():
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    if not name.startswith("apache/spark"):
        return root
    spark = directory / "spark-base"
    if not spark.exists():
        stage = _stage(root, spark)
        quiet = "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; apt-get -qq install --no-install-recommends"
        stage.run(f"{quiet} --yes {' '.join(SPARK_PACKAGES)} >/dev/null && useradd --uid {SPARK_USER} spark")
        [installed] = (ROOT / ".venv/lib").glob("python3.*/site-packages/pyspark")
        (spark / "opt/spark").mkdir(parents=True)
        subprocess.run(
            ["cp", "-a", *(f"{installed}/{part}" for part in SPARK_PARTS), f"{spark}/opt/spark/"], check=True
        )
    return spark


def build(directory: Path, dockerfile: Path, python: Path | None) -> Stage:
    """Runs all steps, and returns the last stage."""
    stages: dict[str, Stage] = {}
    stage = Stage(directory)
    for instruction, argument in read_dockerfile(dockerfile.read_text(encoding="utf-8")):
        print(instruction, argument[:100], flush=True)
        match instruction:
            case "FROM":
                image, _, name = argument.partition(" AS ")
                name = name or "image"
                stage = stages[name] = _stage(base_image(directory, image), directory / name)
            case "COPY":
                _copy(stage, stages, argument.split())
            case "RUN":
                stage.run(argument, mounts=_cache_of_uv(stage))
            case "ENV" | "ARG":
                _set(stage.environment, argument)
                if python is not None and "UV_PYTHON_INSTALL_DIR=" in argument:
                    _install_python(stage, python)
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
                raise SystemExit(f"{dockerfile} has {instruction}, which this tool does not know")
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


def match_on_spark(image: Stage) -> None:
    """Starts a master, a worker and a driver of the image, which match a publication."""
    read_only = (
        f"mount --rbind {image.root} {image.root} && mount -o remount,bind,ro {image.root} && ip link set lo up && "
    )
    began_s = time.monotonic()
    image.run(f"bash -c {shlex.quote(SPARK_PROBE)}", mounts=read_only, is_networked=False)
    print(f"{time.monotonic() - began_s:.1f} s from start to stop")


def _install_python(stage: Stage, prefix: Path) -> None:
    """Puts an installed Python where uv keeps those that it downloads, and makes it movable as those are."""
    [program] = [path for path in (prefix / "bin").glob("python3.*") if re.fullmatch(r"python3\.\d+", path.name)]
    version = subprocess.run([program, "-V"], check=True, capture_output=True, text=True).stdout.split()[1]
    place = stage.path(stage.environment["UV_PYTHON_INSTALL_DIR"]) / f"cpython-{version}-linux-x86_64-gnu"
    place.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", "-T", str(prefix), str(place)], check=True)
    subprocess.run(["patchelf", "--set-rpath", "$ORIGIN/../lib", str(place / "bin" / program.name)], check=True)


def _stage(base: Path, root: Path) -> Stage:
    subprocess.run(["rm", "-rf", str(root)], check=True)
    subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(root)], check=True)
    for name in (CERTIFICATES, Path("/etc/resolv.conf"), Path("/etc/hosts")):
        if name.exists():
            (root / str(name).lstrip("/")).write_bytes(name.read_bytes())
    stage = Stage(root)
    stage.environment |= {"SSL_CERT_FILE": str(CERTIFICATES), "UV_PYTHON_DOWNLOADS": "never"}
    stage.environment["SPARK_HOME"] = "/opt/spark"  # of Spark's image; nobody looks at it in others
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
    main()
