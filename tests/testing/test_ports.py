"""Ports that nobody else takes: neither a connection of anybody, nor another process that asks for ports."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ottla.testing import AsyncBroker, Broker, BrokerError, Faults
from ottla.testing.ports import Ports, first_of_kernel, free_port

#: A process that takes a port for each line it is sent. With `fork` its child goes on, after a first port.
_TAKER = """
import os, sys
from ottla.testing.ports import Ports
ports = Ports(int(sys.argv[1]), int(sys.argv[2]), 8)
os.register_at_fork(after_in_child=ports.begin_anew)
for line in sys.stdin:
    if line == "fork\\n" and os.fork():
        os.wait()
        break
    print(ports.take(), flush=True)
"""
#: Behind the kernel's range, so that nobody is there; each run of the tests has its own.
_LOWEST = 61_000 + os.getpid() % 40 * 100


@contextmanager
def _taker(lowest: int, end: int) -> Iterator[Callable[..., str]]:
    command = [sys.executable, "-c", _TAKER, str(lowest), str(end)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def take(line: str = "") -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            print(line, file=process.stdin, flush=True)
            return process.stdout.readline().strip()

        yield take
        assert process.stdin is not None
        process.stdin.close()


def _said(program: str) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_no_outgoing_connection_is_given_the_port_of_a_broker() -> None:
    with Broker() as broker, Broker(faults=Faults()) as behind_faults:
        taken = [free_port(), broker.port, behind_faults.port, behind_faults._own_port]
    assert max(taken) < first_of_kernel()


async def test_nor_that_of_a_broker_in_the_loop() -> None:
    async with AsyncBroker() as broker, AsyncBroker(faults=Faults()) as behind_faults:
        assert max(broker.port, behind_faults.port) < first_of_kernel()


def test_processes_are_given_different_ones_until_none_is_left() -> None:
    with ExitStack() as running:
        takers = [running.enter_context(_taker(_LOWEST, _LOWEST + 16)) for _ in range(2)]
        found = [take() for take in takers]
        assert {(int(port) - _LOWEST) // 8 for port in found} == {0, 1}, "one block for each"
        with _taker(_LOWEST, _LOWEST + 16) as third:
            assert int(third()) not in range(_LOWEST, _LOWEST + 16), "any free one"
    with _taker(_LOWEST, _LOWEST + 16) as later:
        assert later() in found, "what ended processes claimed is free again"


def test_a_forked_process_does_not_go_on_with_its_parents() -> None:
    with _taker(_LOWEST, _LOWEST + 16) as take:
        before, after = int(take()), int(take("fork"))
    assert (before - _LOWEST) // 8 != (after - _LOWEST) // 8


def test_nor_does_one_that_asks_for_a_free_port() -> None:
    program = """
import os
from ottla.testing.ports import free_port
print(free_port(), flush=True)
if not os.fork():
    print(free_port(), flush=True)
    os._exit(0)
os.wait()
print(free_port(), flush=True)
"""
    before, childs, after = ((int(port) - 10_000) // 128 for port in _said(program))
    assert before == after != childs


def test_each_process_begins_elsewhere() -> None:
    program = f"""
import os
from ottla.testing.ports import Ports
print(os.getpid() % 3, (Ports({_LOWEST}, {_LOWEST + 24}, 8).take() - {_LOWEST}) // 8)
"""
    for _ in range(3):
        (words,) = _said(program)
        expected, found = words.split()
        assert found == expected


def test_none_is_given_twice_and_one_in_use_is_passed_over() -> None:
    with _taker(_LOWEST, _LOWEST + 8) as take, socket.create_server(("127.0.0.1", _LOWEST + 3)):
        found = [int(take()) for _ in range(8)]
    assert found[:6] == [_LOWEST + n for n in (1, 2, 4, 5, 6, 7)]
    assert not {*found[6:]} & {*range(_LOWEST, _LOWEST + 8)}, "who goes on for long is given any free one at last"


def test_one_that_could_not_be_looked_for_is_looked_for_again() -> None:
    """After too many open files, once, no port was ever found again."""
    program = f"""
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from ottla.testing.ports import Ports
ports, (_, most) = Ports({_LOWEST}, {_LOWEST + 8}, 8), getrlimit(RLIMIT_NOFILE)
for files in (0, most, 0, most):
    setrlimit(RLIMIT_NOFILE, (files, most))
    try:
        print(ports.take() - {_LOWEST})
    except OSError as error:
        print(error.strerror)
"""
    assert _said(program) == [os.strerror(errno.EMFILE), "1", os.strerror(errno.EMFILE), "2"]


def test_where_the_kernel_leaves_no_room_it_is_any_free_one() -> None:
    ports = Ports(10_000, 1024, 128)
    first, second = ports.take(), ports.take()
    assert 0 < first != second > 0
    with socket.create_server(("127.0.0.1", first)), socket.create_server(("127.0.0.1", second)):
        pass


@pytest.mark.parametrize(
    ("said", "expected"), [("20000\t61000\n", 20_000), *((each, 32_768) for each in ("", "none\n", None))]
)
def test_the_kernels_range_is_read_where_it_can_be(tmp_path: Path, said: str | None, expected: int) -> None:
    if said is not None:
        (tmp_path / "range").write_text(said)
    assert first_of_kernel(tmp_path / "range") == expected


def test_a_start_that_failed_is_tried_again_on_another_port(tmp_path: Path) -> None:
    """Somebody may have taken the port just before."""
    broker = Broker({"no.such": 1}, data_dir=tmp_path)
    with pytest.raises(BrokerError):
        broker.start()
    assert broker._own_port == 0
