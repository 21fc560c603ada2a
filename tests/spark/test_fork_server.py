"""Python processes of Spark that are forked from one server: each is what Python itself would have been."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla.spark.fork_client import SERVER_VARIABLE
from ottla.spark.home import FORKED_PYTHON, home_without_zip

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere nothing is forked")

#: It takes the part of the driver: starts a server and becomes a script, as `ottla run` does.
_DRIVER = """
import os, sys
from pathlib import Path
from ottla.spark import fork_server
given = fork_server.start(Path(sys.argv[1]), os.environ)
os.execve(sys.executable, [sys.executable, "-c", sys.argv[2]], {**os.environ, **given})
"""
#: It says what it was given until its input ends, and exits as its first argument says.
_PROCESS = """
import json, os, resource, sys, time
umask = os.umask(0)
said = {
    "umask": umask, "limits": [resource.getrlimit(n) for n in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)],
    "nice": os.nice(0), "processors": sorted(os.sched_getaffinity(0)), "zone": [time.tzname, time.localtime(0)[:5]],
    "name": __name__, "argv": sys.argv, "cwd": os.getcwd(), "path": sys.path, "spec": __spec__.name,
    "environ": dict(os.environ), "main": sys.modules["__main__"].__dict__ is globals(),
    "among the tests": os.getpgrp() == int(os.environ["GROUP_OF_TESTS"]),
}
print(json.dumps(said))
sys.stderr.write("to its errors")
for line in sys.stdin:
    print(line, end="")
code = sys.argv[1]
sys.exit(int(code) if code.isdigit() else code)
"""
#: What a JVM, or a script, may have changed since the server began.
_CHANGED = 'umask 077; ulimit -Sn 300; ulimit -c 0; exec nice -n 3 "$@"'
#: It takes a signal that comes before it waits for one, too, and one that a thread of it is told of.
_WAITING = """
import os, signal, sys
told, tell = os.pipe()
os.set_blocking(tell, False)
signal.set_wakeup_fd(tell)
signal.signal(signal.SIGTERM, lambda *_: None)
print(os.getppid(), flush=True)
os.read(told, 1)
sys.exit(7)
"""
#: Another thread takes note of the signal, so that it interrupts no call of this one.
_NOTED_ELSEWHERE = """
import os, signal, socket, subprocess, sys, threading
from ottla.spark import fork_client
ours, theirs = socket.socketpair()
process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
signals = fork_client._hand_on(process.pid)
masked = threading.Event()
def end():
    masked.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    process.wait()
    theirs.sendall(bytes([5]))
threading.Thread(target=end).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
masked.set()
sys.exit(fork_client._wait(ours, signals))
"""
#: The signal comes as the process is told to begin, and finds it there, or gone.
_AS_IT_BEGINS = """
import os, signal, subprocess, sys
from ottla.spark import fork_client
class Server:
    def sendall(self, data):
        os.kill(os.getpid(), signal.SIGTERM)
        if sys.argv[1] == "0":
            raise BrokenPipeError
process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
try:
    fork_client._begin(Server(), process.pid)
except OSError:
    sys.exit("it became Python itself")
finally:
    sys.exit(process.wait() != -signal.SIGTERM)
"""


class Driver:
    """A driver that does nothing, with a server, and the processes that Spark would start for it."""

    def __init__(self, folder: Path, **environ: str) -> None:
        package = Path(str(pytest.importorskip("pyspark").__file__)).parent
        home = home_without_zip(package, {"HOME": str(folder)})
        assert home is not None
        self._program = home / FORKED_PYTHON
        modules = folder / "modules"
        modules.mkdir(exist_ok=True)
        (modules / "a_process.py").write_text(_PROCESS)
        (modules / "a_waiting_one.py").write_text(_WAITING)
        self.environ = {
            **os.environ,
            "TMPDIR": str(folder),
            "PYTHONPATH": str(modules),
            "PYTHONHASHSEED": "0",
            "GROUP_OF_TESTS": str(os.getpgrp()),
            **environ,
        }
        script = f"import os, sys\nprint(os.environ.get({SERVER_VARIABLE!r}, ''), flush=True)\nsys.stdin.read()"
        command = [sys.executable, "-c", _DRIVER, str(self._program), script]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=self.environ)
        assert self._process.stdout is not None
        self.socket = Path(self._process.stdout.readline().strip())

    def command(self, *arguments: str) -> list[str]:
        return [str(self._program), *arguments]

    def run(
        self, *arguments: str, plain: bool = False, changed: bool = False, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments] if plain else self.command(*arguments)
        command = ["sh", "-c", _CHANGED, "sh", *command] if changed else command
        env = {**self.environ, SERVER_VARIABLE: str(self.socket), **environ}
        group = 0 if changed else None
        return subprocess.run(
            command, input="line\n", capture_output=True, text=True, env=env, check=False, process_group=group
        )

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path)
    yield driver
    driver.end()


def _is_forked(driver: Driver, **environ: str) -> bool:
    env = {**driver.environ, SERVER_VARIABLE: str(driver.socket), **environ}
    with subprocess.Popen(driver.command("-m", "a_waiting_one"), stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        parent = int(process.stdout.readline())
        called = Path(f"/proc/{parent}/cmdline").read_text()
        process.send_signal(signal.SIGTERM)
        process.wait()
    assert process.returncode == 7, "the signal is handed on, and the exit code comes back"
    return "ottla.spark.fork_server" in called


def _said(done: subprocess.CompletedProcess[str]) -> tuple[Any, list[str], str, int]:
    first, *others = done.stdout.splitlines()
    said = json.loads(first)
    said["argv"][0] = Path(said["argv"][0]).name
    return said, others, done.stderr, done.returncode


def test_a_forked_process_is_what_python_itself_would_be(driver: Driver, tmp_path: Path) -> None:
    assert _is_forked(driver)
    for code in ("0", "3", "a reason"):
        forked = driver.run("-m", "a_process", code, "--more", OF_SPARK="é")
        assert _said(forked) == _said(driver.run("-m", "a_process", code, "--more", plain=True, OF_SPARK="é"))


def test_it_has_what_the_process_that_starts_it_has(driver: Driver) -> None:
    asked = ("-m", "a_process", "0")
    forked = _said(driver.run(*asked, changed=True, TZ="Asia/Tokyo"))
    assert forked == _said(driver.run(*asked, plain=True, changed=True, TZ="Asia/Tokyo"))
    assert (forked[0]["umask"], forked[0]["limits"][0][0], forked[0]["zone"][1][3]) == (0o77, 300, 9)
    assert not forked[0]["among the tests"]


def test_who_asks_looks_for_nothing_where_pythonpath_says_and_the_process_does(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text("import sys\nsys.stderr.write('looked, ')\n")
    driver = Driver(tmp_path)
    path = f"{modules}:{tmp_path}/gone:{modules}/../modules::{modules}"
    assert _is_forked(driver, PYTHONPATH=path)
    forked = driver.run("-m", "a_process", "0", PYTHONPATH=path)
    plain = driver.run("-m", "a_process", "0", plain=True, PYTHONPATH=path)
    driver.end()
    assert _said(forked)[:2] == _said(plain)[:2]
    assert (forked.stderr, plain.stderr) == ("to its errors", "looked, to its errors")


@pytest.mark.parametrize(("name", "is_forked"), [("PYTHONUSERBASE", False), ("PYTHONNOUSERSITE", True)])
def test_where_modules_may_be_elsewhere_nothing_is_forked(tmp_path: Path, name: str, is_forked: bool) -> None:
    driver = Driver(tmp_path, **{name: str(tmp_path)})
    assert _is_forked(driver) is is_forked
    driver.end()


def test_a_request_that_is_none_ends_nothing(driver: Driver) -> None:
    assert _is_forked(driver)
    for text in (b"", b"\0\0\0\x02[]", b"\0\0\0\x02{}", b"\0\0\0\x05{\xff}xx"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(driver.socket))
            client.sendall(text)
            client.shutdown(socket.SHUT_WR)
            client.recv(4)
    assert _is_forked(driver)


def test_what_has_a_state_of_its_own_is_not_imported_beforehand() -> None:
    """Copies would draw the same numbers of numpy's generator; and pandas, which few use, takes long."""
    program = "import sys\nfrom ottla.spark import fork_server\nprint(fork_server._import())\n"
    program += "print([name for name in ('numpy.random', 'pandas') if name in sys.modules])"
    command = [sys.executable, "-c", program]
    said = subprocess.check_output(command, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert said.splitlines() == ["True", "[]"]


def test_a_process_that_fails_says_why(driver: Driver) -> None:
    failed = driver.run("-m", "a_process")
    assert failed.returncode == 1
    assert "IndexError" in failed.stderr
    missing = driver.run("-m", "no_such_module")
    assert missing.returncode == 1
    assert "No module named no_such_module" in missing.stderr


def test_what_would_start_otherwise_is_no_fork(driver: Driver, tmp_path: Path) -> None:
    """Other settings of the interpreter or of a library that reads its own at the start, or another Ottla."""
    assert not _is_forked(driver, PYTHONHASHSEED="1")
    assert not _is_forked(driver, ARROW_DEFAULT_MEMORY_POOL="system")
    assert not _is_forked(driver, OMP_NUM_THREADS="2")
    assert _is_forked(driver, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="YES", PYTHON_WORKER_FACTORY_SECRET="x")
    for name in ("pyarrow", "numpy"):
        other = tmp_path / f"other {name}" / name
        other.mkdir(parents=True)
        (other / "__init__.py").touch()
        assert not _is_forked(driver, PYTHONPATH=f"{other.parent}:{driver.environ['PYTHONPATH']}")


def test_anything_but_a_module_is_python_itself(driver: Driver) -> None:
    assert driver.run("-c", "import sys; print(sys.argv)", "x").stdout == "['-c', 'x']\n"
    assert driver.run("-V").stdout.startswith("Python 3")


def test_a_signal_that_comes_before_the_wait_is_handed_on() -> None:
    """Python had taken note of it and handed it on when the wait was over: a job that was ended went on."""
    done = subprocess.run([sys.executable, "-c", _NOTED_ELSEWHERE], check=False, timeout=60)
    assert done.returncode == 5


@pytest.mark.parametrize(("begins", "code"), [(True, 0), (False, -signal.SIGTERM)])
def test_a_signal_that_comes_as_the_process_begins_ends_it_or_the_client(begins: bool, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", _AS_IT_BEGINS, str(int(begins))], check=False)
    assert done.returncode == code


def test_without_a_server_the_process_is_python_itself(driver: Driver) -> None:
    assert not _is_forked(driver, **{SERVER_VARIABLE: ""})
    assert not _is_forked(driver, **{SERVER_VARIABLE: str(driver.socket.with_name("none"))})


def test_the_server_ends_with_the_driver_and_leaves_nothing(driver: Driver) -> None:
    assert _is_forked(driver)
    env = {**driver.environ, SERVER_VARIABLE: str(driver.socket)}
    with subprocess.Popen(driver.command("-m", "a_waiting_one"), stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        server = int(process.stdout.readline())
        ended = os.pidfd_open(server)
        driver.end()
        select.select([ended], [], [])
        os.close(ended)
        assert not driver.socket.parent.exists()
        process.terminate()
    assert process.returncode == 7, "what it has forked goes on until it is ended"


def test_with_a_thread_nothing_is_forked(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    thread = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (modules / "sitecustomize.py").write_text(thread)
    driver = Driver(tmp_path)
    assert not _is_forked(driver)
    driver.end()
