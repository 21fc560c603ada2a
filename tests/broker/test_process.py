"""`ottla serve` as a process: how it ends when it is interrupted before it listens, and what it calls itself."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.log.checkpoint import CLEAN_SHUTDOWN_MARKER
from tests.signals import as_at_a_terminal

#: Ctrl-C arrives when the module is looked for.
_INTERRUPTED = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts())
from ottla.cli.main import main
sys.exit(main(["serve", "--port", "0", "--data-dir", {directory!r}]))
"""


@pytest.mark.parametrize(
    "module",
    ["ottla.broker.process", "asyncio", "ottla.broker.config", "uvloop", "ottla.broker.app", "ottla.broker.node"],
)
def test_ctrl_c_while_the_broker_is_imported_ends_it_quietly(module: str, tmp_path: object) -> None:
    code = _INTERRUPTED.format(module=module, directory=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_wrong_option_is_told_under_the_commands_own_name() -> None:
    command = [sys.executable, "-m", "ottla", "serve", "--prot", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ottla serve [-h]")


def _serve(directory: Path, before: str = "") -> subprocess.Popen[str]:
    """A broker that is ready, in a shell that has run `before`."""
    command = [sys.executable, "-m", "ottla.broker.process", "--port", "0", "--data-dir", str(directory)]
    shell = ["sh", "-c", f'{before}exec "$0" "$@"', *command]
    pipe = subprocess.PIPE
    running = subprocess.Popen(shell, stdout=pipe, stderr=pipe, text=True, preexec_fn=as_at_a_terminal)
    assert running.stdout is not None
    assert running.stdout.readline().startswith("ottla ready ")
    return running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_a_broker_in_order(tmp_path: Path, number: signal.Signals) -> None:
    running = _serve(tmp_path)
    running.send_signal(number)
    assert (running.communicate(timeout=60)[1], running.returncode) == ("", 0)
    assert (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()


def test_a_broker_under_nohup_stays_when_its_terminal_goes(tmp_path: Path) -> None:
    running = _serve(tmp_path, "trap '' HUP; ")
    running.send_signal(signal.SIGHUP)
    status = Path(f"/proc/{running.pid}/status").read_text()
    [ignored] = [line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")]
    assert int(ignored, 16) >> (signal.SIGHUP - 1) & 1
    running.terminate()
    assert (running.communicate(timeout=60)[1], running.returncode) == ("", 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how large the table is")
def test_the_systems_table_of_open_files_does_not_grow_while_clients_are_served(tmp_path: Path) -> None:
    """Each time it grows, a process with several threads waits for 10 to 20 ms."""
    running = _serve(tmp_path, "ulimit -n 5000; ")
    status = Path(f"/proc/{running.pid}/status").read_text()
    [slots] = [line.split()[1] for line in status.splitlines() if line.startswith("FDSize:")]
    running.terminate()
    assert (running.communicate(timeout=60)[1], running.returncode) == ("", 0)
    assert int(slots) >= 5_000


#: Handlers that are not imported when a broker is ready, and when it has imported them.
_IMPORTS = """
import asyncio, sys
from ottla.broker.app import BrokerApp
from ottla.broker.config import BrokerConfig
from ottla.broker.handlers.table import TABLE

def missing():
    names = (f"ottla.broker.handlers.{{entry.key.name.lower()}}" for entry in TABLE.values())
    return sum(name not in sys.modules for name in names)

async def main():
    app = BrokerApp(BrokerConfig({{"log.dirs": {directory!r}, "listeners": "PLAINTEXT://127.0.0.1:0"}}))
    await app.start()
    before = missing()
    await app.import_handlers()
    print(before > 30, missing())
    await app.stop()

asyncio.run(main())
"""


def test_a_broker_imports_behind_its_start_what_requests_need(tmp_path: object) -> None:
    """Later there may be no file left to open, or another version in the same place."""
    code = _IMPORTS.format(directory=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("True 0\n", "")
