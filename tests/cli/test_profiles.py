"""Profiles in `~/.config/ottla/`: which file a name means, and that each command which talks to a broker uses it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from ottla.base.errors import ConfigError
from ottla.cli.commands import COMMANDS
from ottla.cli.profiles import config_file, directory
from tests.cli.conftest import Ottla

_NOBODY = "127.0.0.1:1"
_PROFILE = f"""bootstrap.servers={_NOBODY}
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.username=alice
sasl.password=hunter2
default.api.timeout.ms=300
max.block.ms=300
"""
#: Every command that talks to a broker, with the least that it wants to be told.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "topics list": (),
    "topics create": ("x",),
    "topics describe": ("x",),
    "topics delete": ("x",),
    "topics alter": ("x", "--partitions", "2"),
    "produce": ("x", "--file", "one-line"),
    "consume": ("x", "--until-end"),
    "groups list": (),
    "groups describe": ("g",),
    "groups offsets": ("g",),
    "groups watch": ("g",),
    "groups reset": ("g", "--all-topics", "--to", "earliest"),
    "groups delete-offsets": ("g", "x"),
    "groups remove-members": ("g", "--all"),
    "groups delete": ("g",),
    "assign": ("--group", "g"),
    "transactions list": (),
    "transactions describe": ("t",),
    "transactions find-hanging": (),
    "transactions who-holds": ("x:0",),
    "transactions watch": (),
    "transactions abort": ("t",),
    "transactions commit": ("--producer-id", "7", "--producer-epoch", "0", "--partition", "x:0", "--dry-run"),
    "users list": (),
    "users set": ("bob", "--password-file", "one-line"),
    "users delete": ("bob",),
    "acls list": (),
    "acls add": ("User:bob", "READ", "--topic", "x"),
    "acls remove": ("--topic", "x"),
    "quotas list": (),
    "quotas set": ("--user", "bob", "request_percentage=5"),
    "quotas remove": ("--user", "bob"),
    "doctor": ("--no-spark",),
    "pipeline list": (),
    "pipeline describe": ("words",),
    "pipeline resolve": ("words",),
    "demo": ("--lines", "1000"),
    "bench": ("--records", "1000"),
}


def _leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for each, below in command.commands.items():
            yield from _leaves(below, f"{name} {each}".strip())
    else:
        yield name, command


def _that_talk_to_a_broker() -> Iterator[str]:
    app = typer.Typer()
    app.callback()(lambda: None)
    for command in COMMANDS:
        real = command.load()
        if isinstance(real, typer.Typer):
            app.add_typer(real, name=command.name)
        else:
            app.command(command.name, **command.settings)(real)
    for name, leaf in _leaves(typer.main.get_command(app), ""):
        if any(each.name == "bootstrap" for each in leaf.params):
            yield name


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the profile `cluster`, and an empty working directory."""
    home = tmp_path / "home" / ".config" / "ottla"
    home.mkdir(parents=True)
    (home / "cluster.properties").write_text(_PROFILE)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "one-line").write_text("a\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path / "here")
    return home


def test_x1_no_command_that_talks_to_a_broker_is_left_out() -> None:
    assert sorted(_that_talk_to_a_broker()) == sorted(_ARGUMENTS)


@pytest.mark.parametrize("command", _ARGUMENTS)
def test_x1_a_command_uses_the_profile_and_shows_none_of_its_secrets(
    ottla: Ottla, profiles: Path, command: str
) -> None:
    """Also where OTTLA_BOOTSTRAP names another cluster, for which its user and password are not meant."""
    assert "OTTLA_BOOTSTRAP" in os.environ
    said = ottla("--config", "cluster", *command.split(), *_ARGUMENTS[command])
    assert said.code == 1
    assert _NOBODY in said.out + said.err
    assert "hunter2" not in said.out + said.err


def test_x1_a_file_that_is_there_comes_before_a_profile_of_that_name(profiles: Path) -> None:
    environ = {"HOME": str(profiles.parents[1])}
    assert config_file("cluster", environ) == profiles / "cluster.properties"
    Path("cluster").touch()
    assert config_file("cluster", environ) == Path("cluster")


def test_x1_what_can_only_be_a_file_is_no_profile(profiles: Path) -> None:
    environ = {"HOME": str(profiles.parents[1])}
    for file in ("cluster.properties", "./cluster", "etc/cluster"):
        assert config_file(file, environ) == Path(file)


def test_x1_profiles_are_where_the_desktops_specification_wants_them(profiles: Path) -> None:
    assert directory({"HOME": "/srv/zoe", "XDG_CONFIG_HOME": "/etc/zoe"}) == Path("/etc/zoe/ottla")
    assert directory({"HOME": "/srv/zoe", "XDG_CONFIG_HOME": "etc"}) == Path("/srv/zoe/.config/ottla")
    assert directory({"HOME": "/srv/zoe"}) == Path("/srv/zoe/.config/ottla")


def test_x1_a_profile_that_is_not_there_is_told_with_those_that_are(profiles: Path) -> None:
    environ = {"HOME": str(profiles.parents[1])}
    with pytest.raises(ConfigError, match=r"cannot read staging: .*ottla/staging\.properties; profiles are cluster"):
        config_file("staging", environ)
    with pytest.raises(ConfigError, match="there are no profiles yet"):
        config_file("staging", {"HOME": "/nowhere"})
