"""`ottla --help` imports no command, and says of each what the command says itself."""

import inspect
import subprocess
import sys

import pytest
import typer

from ottla.cli.commands import COMMANDS, Command


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_list_says_what_the_command_says(command: Command) -> None:
    real = command.load()
    said = real.info.help if isinstance(real, typer.Typer) else inspect.getdoc(real)
    assert said is not None
    assert " ".join(said.split("\n\n")[0].split()) == command.help


def test_help_imports_no_command_and_a_command_only_itself() -> None:
    code = (
        "import sys; from ottla.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(*sorted({name.split('.')[2] for name in sys.modules if name.startswith('ottla.cli.')}))"
    )
    shared = {"app", "commands", "common", "main", "signals"}
    for words, more in ((["--help"], set()), (["topics", "--help"], {"topics"}), (["history", "-h"], {"history"})):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
        assert set(done.stdout.splitlines()[-1].split()) == shared | more
