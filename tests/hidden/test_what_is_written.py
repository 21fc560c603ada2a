"""What brokers, clients and the command line write when they say all they can: there is no secret in it.

A broker with a listener of each protocol, at log level DEBUG, with its audit log; clients at DEBUG with right and wrong
passwords, keys and authorities; the same by the command line. All that they say is collected, and searched as at the
end of each run (`tests/marked.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ottla.broker.config_keys import STANDARD_AUTHORIZER
from ottla.broker.session import ANONYMOUS
from tests.broker.four_listeners import PROTOCOLS, USER, client, make_certificates, settings
from tests.marked import MARK, leaks_below

pytestmark = pytest.mark.slow


class _World:
    """A broker at log level DEBUG. Its log, and what others say of it, are files of `said`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.said = directory / "said"
        self.said.mkdir()
        make_certificates(directory)
        (directory / "alice.password").write_text(f"scram-{MARK}\n")
        audited = {"authorizer.class.name": STANDARD_AUTHORIZER, "audit.log.allowed": "true"}
        config = {**settings(directory), **audited, "super.users": f"{ANONYMOUS};User:{USER}"}
        (directory / "broker.properties").write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        # not by -o: every user of a machine sees command lines
        where = ("--config", str(directory / "broker.properties"), "--data-dir", str(directory / "data"))
        users = ("--add-scram", f"alice={directory / 'alice.password'}")
        with (self.said / "broker.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ottla", "serve", *where, *users, "--log-level", "debug"],
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment(),
                text=True,
            )
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        assert ready.startswith("ottla ready"), (self.said / "broker.log").read_text()
        self.listeners = dict(each.split("://") for each in ready.split()[3:])

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
        return {**own, "PYTHONASYNCIODEBUG": "1", "HOME": str(self.directory)}

    def client(self, protocol: str, **more: str) -> dict[str, str]:
        """A client's settings; those in `more` with underscores for dots."""
        own = client(self.directory, protocol, self.listeners[protocol])
        return {**own, **{name.replace("_", "."): value for name, value in more.items()}}

    def run(self, name: str, *command: str, given: str = "") -> subprocess.CompletedProcess[bytes]:
        """Run a Python module to its end; both outputs stay in files of that name."""
        done = subprocess.run(
            [sys.executable, "-m", *command],
            input=given.encode(),
            capture_output=True,
            env=self._environment(),
            timeout=120,
            check=False,
        )
        (self.said / f"{name}.out").write_bytes(done.stdout)
        (self.said / f"{name}.err").write_bytes(done.stderr)
        return done

    def stop(self) -> None:
        """End the broker; its log is whole then."""
        self._process.terminate()
        self._process.communicate(timeout=60)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[_World]:
    world = _World(tmp_path)
    yield world
    world.stop()


def _wrong(world: _World) -> list[dict[str, str]]:
    """Settings that are refused: by the broker, by the client that connects, or when they are read."""
    scram = {"sasl_mechanism": "SCRAM-SHA-512"}
    stranger = {"ssl_ca_location": str(world.directory / "stranger.pem")}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return [
        world.client("SASL_PLAINTEXT", sasl_password=f"wrong-{MARK}"),
        world.client("SASL_SSL", sasl_password=f"wrong-{MARK}"),
        world.client("SASL_PLAINTEXT", sasl_password=f"wrong-{MARK}", **scram),
        world.client("SASL_PLAINTEXT", sasl_username="bob", sasl_password=f"bobs-{MARK}", **scram),
        world.client("SASL_SSL", **stranger),
        world.client("SSL", ssl_key_password=f"wrong-{MARK}"),
        world.client("SSL", ssl_key_pem=f"-----BEGIN PRIVATE KEY-----\n{MARK}\n-----END PRIVATE KEY-----"),
        world.client("SASL_PLAINTEXT", sasl_mechanism=f"PLAIN-{MARK[:3]}"),
        world.client("SASL_PLAINTEXT", sasl_pasword=f"{MARK}-typed-under-another-name"),
        {**world.client("PLAINTEXT"), "security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": f'{module} {MARK}"'},
    ]


def test_x1_clients_and_broker_that_say_all_they_can_say_no_secret(world: _World) -> None:
    right = [world.client(protocol) for protocol in PROTOCOLS]
    right.append(world.client("SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_password=f"scram-{MARK}"))
    done = world.run("talker", "tests.hidden.talker", given=json.dumps({"right": right, "wrong": _wrong(world)}))
    assert done.stdout.splitlines()[-1:] == [b"%d" % len(right)], done.stderr.decode()[-2000:]
    world.stop()
    assert "DEBUG" in (world.said / "talker.err").read_text(), "the clients were not at their highest level"
    assert "SaslAuthenticationError" in (world.said / "talker.out").read_text()
    assert "User:alice" in (world.said / "broker.log").read_text(), "the broker's log says who came"
    assert list(leaks_below(world.said)) == []


def _properties(world: _World, name: str, config: Mapping[str, str]) -> str:
    path = world.directory / f"{name}.properties"
    path.write_text("".join(f"{key}={value!r}\n".replace("'", "") for key, value in config.items()))
    return str(path)


def test_x1_the_command_line_shows_no_secret(world: _World) -> None:
    right = _properties(world, "right", world.client("SASL_SSL"))
    configs = [right, *(_properties(world, f"wrong-{n}", each) for n, each in enumerate(_wrong(world)))]
    short = ("-o", "default.api.timeout.ms=2000")  # for those that are refused; the first has all its time
    codes = [
        world.run(f"topics-{n}", "ottla", "--config", config, "topics", "list", *(short if n else ())).returncode
        for n, config in enumerate(configs)
    ]
    assert (codes[0], set(codes[1:])) == (0, {1})
    file = str(world.directory / "alice.password")
    for name, command in (
        ("set", ("users", "set", "carol", "--password-file", file)),
        ("list", ("users", "list", "--json")),
        ("doctor", ("doctor", "--no-spark", "--json")),
    ):
        world.run(name, "ottla", "--config", right, *command)
    world.stop()
    world.run("dump", "ottla", "dump-log", "--records", str(world.directory / "data" / "__cluster_metadata-0"))
    assert "carol" in (world.said / "dump.out").read_text(), "the log of users was not shown"
    assert list(leaks_below(world.said)) == []
    assert list(leaks_below(world.directory / "data")) == [], "passwords themselves are in no file of the broker"


def test_negative_control_a_line_with_a_secret_among_all_that_is_found(world: _World) -> None:
    world.run("topics", "ottla", "--config", _properties(world, "right", world.client("SASL_SSL")), "topics", "list")
    planted = world.said / "topics.err"
    clean = planted.read_text()
    planted.write_text(f"{clean}sasl.password is {MARK}\n")
    (found,) = leaks_below(world.said)
    planted.write_text(clean)
    assert found.where == str(planted)
