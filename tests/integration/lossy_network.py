"""Two network namespaces with a delayed and lossy link between them, as `tc netem` makes it where the kernel has it.

A namespace has threads: what they start and connect is in it. Each has a TUN device, and packets are
carried from one to the other by another thread, which drops some of them and delays all, each for another time: packets
overtake each other too.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, Self, TypeVar

from tests.integration.components import do_without

ADDRESSES = ("10.77.0.1", "10.77.0.2")
DEVICE = "lossy0"
PACKET_BYTES_MAX = 65_536

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN_WITHOUT_HEADER = 0x1001

P = ParamSpec("P")
T = TypeVar("T")


class Site:
    """A network namespace with a loopback device and one end of the link."""

    def __init__(self, address: str, peer: str) -> None:
        self.address = address
        with ThreadPoolExecutor(1) as thread:
            self._namespace, self.device = thread.submit(self._create, peer).result()
        self._threads = ThreadPoolExecutor(initializer=lambda: _call("setns", self._namespace, CLONE_NEWNET))

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function in this namespace: its sockets and processes are in it."""
        return self.start(function, *args, **kwargs).result()

    def start(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As `run`, without waiting for it."""
        return self._threads.submit(function, *args, **kwargs)

    def _create(self, peer: str) -> tuple[int, int]:
        if shutil.which("ip") is None:
            do_without("there is no ip on the PATH; run tools/iproute")
        try:
            _call("unshare", CLONE_NEWNET)
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        except OSError as error:
            do_without(f"network namespaces or TUN devices cannot be made here: {error}")
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN_WITHOUT_HEADER))
        for command in (
            "link set lo up",
            f"address add {self.address} peer {peer} dev {DEVICE}",
            f"link set {DEVICE} up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY), device

    def close(self) -> None:
        self._threads.shutdown()
        os.close(self.device)
        os.close(self._namespace)


def _call(function: str, *arguments: int) -> None:
    """A function of the C library, for the thread that calls it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments):
        raise OSError(ctypes.get_errno(), f"{function}: {os.strerror(ctypes.get_errno())}")


class LossyNetwork:
    """Two sites. `loss` is the chance that a packet is dropped, `delay_s` the least and the longest delay."""

    def __init__(self, *, loss: float, delay_s: tuple[float, float], seed: int) -> None:
        self.dropped = self.carried = 0
        self._loss, self._delay_s = loss, delay_s
        self._random = random.Random(seed)
        self.left = Site(*ADDRESSES)
        self.right = Site(*reversed(ADDRESSES))
        self._is_closed = False
        self._carrier = threading.Thread(target=self._carry)
        self._carrier.start()

    def _carry(self) -> None:
        ends = {self.left.device: self.right.device, self.right.device: self.left.device}
        late: list[tuple[float, int, int, bytes]] = []
        while not self._is_closed:
            wait_s = min(0.1, max(0.0, late[0][0] - time.monotonic())) if late else 0.1
            for device in select.select(list(ends), [], [], wait_s)[0]:
                packet = os.read(device, PACKET_BYTES_MAX)
                if self._random.random() < self._loss:
                    self.dropped += 1
                    continue
                self.carried += 1
                due_s = time.monotonic() + self._random.uniform(*self._delay_s)
                heapq.heappush(late, (due_s, self.carried, ends[device], packet))
            while late and late[0][0] <= time.monotonic():
                _, _, device, packet = heapq.heappop(late)
                os.write(device, packet)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        self._carrier.join()
        self.left.close()
        self.right.close()
