"""Ports for processes that are started, killed, and started again on the same port.

The kernel takes the local port of each outgoing connection from a range of its own; `bind` with port 0 takes from it
too. A port of that range may be gone before a broker listens on it, or while it is down: to a connection of anybody,
even to that of a client which tries to reach the broker. So these ports are below that range. A process claims a block
of them, by a UDP socket on the block's first number that nobody uses: no other process hands out ports of the block,
and the claim goes when the process does.
"""

import os
import socket
from collections import deque
from pathlib import Path
from threading import Lock
from typing import Final

_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Where the kernel's range begins on Linux, unless it says otherwise; what other systems have is not looked at.
_USUAL: Final = 32_768
_LOWEST: Final = 10_000
_BLOCK: Final = 128


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free, and that no outgoing connection and no other caller of this takes.

    Where the kernel's range leaves no room below it, or all of that was given out or is claimed, any free port.
    """
    return _PORTS.take()


class Ports:
    """The ports from `lowest` to below `end`, in blocks of `block`, each block for one process at a time."""

    def __init__(self, lowest: int, end: int, block: int) -> None:
        self._blocks = [range(first, first + block) for first in range(lowest, end - block + 1, block)]
        self.begin_anew()

    def begin_anew(self) -> None:
        """Claim other blocks from now on: a forked process would hand out its parent's ports."""
        self._lock = Lock()
        # Each process begins elsewhere, so that a client left behind by one does not reach the broker of the next.
        at = os.getpid() % max(len(self._blocks), 1)
        #: Blocks that may be claimed, and ports of the claimed one that were not given out.
        self._unclaimed = deque(self._blocks[at:] + self._blocks[:at])
        self._own: deque[int] = deque()

    def take(self) -> int:
        """The next port that is free, never one a second time; any free one when none is left.

        OSError when that cannot be found out, as where a process may open no more files; it can be asked again.
        """
        with self._lock:
            while self._own or self._unclaimed:
                if not self._own:
                    first, *others = self._unclaimed[0]
                    self._own += others if _claim(first) else ()
                    self._unclaimed.popleft()
                elif _is_free(self._own[0]):
                    return self._own.popleft()
                else:
                    self._own.popleft()
        return _any()


def first_of_kernel(path: Path = _RANGE) -> int:
    """The lowest port that the kernel takes for outgoing connections."""
    try:
        return int(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL


def _claim(port: int) -> bool:
    """Claim the number until this process ends; whether that could be done."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as claim:
        try:
            claim.bind(("127.0.0.1", port))
        except OSError:
            return False
        claim.detach()
        return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _any() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_PORTS: Final = Ports(_LOWEST, first_of_kernel(), _BLOCK)
os.register_at_fork(after_in_child=_PORTS.begin_anew)
