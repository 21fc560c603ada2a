"""`ottla certs`, and the commands of docs/security.md, typed as they stand there."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from cryptography import x509

from ottla.cli.main import main
from ottla.testing.ports import free_port
from tests.cli.processes import line_of, ottla_process
from tests.house.tree import ROOT


def _commands() -> list[str]:
    """The five of the page."""
    page = (ROOT / "docs" / "security.md").read_text()
    found = re.search(r"### TLS and SCRAM in five commands\n.*?^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def test_the_page_has_a_secure_broker_in_five_commands(tmp_path: Path) -> None:
    port = str(free_port())
    certs, password, serve, properties, create = (each.replace("9093", port) for each in _commands())
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    environment.pop("OTTLA_BOOTSTRAP", None)

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    run(certs)
    run(password)
    run(properties)
    with ottla_process(*serve.split()[1:], cwd=tmp_path) as broker:
        assert line_of(broker.stdout).startswith("ottla ready ")
        assert "orders" in run(create)
        assert "admin" in run("ottla --config secure/admin.properties users list")
        wrong = (tmp_path / "secure/admin.properties").read_text().replace("sasl.password=", "sasl.password=x")
        (tmp_path / "wrong.properties").write_text(wrong)
        with pytest.raises(AssertionError, match="refuses user admin"):
            run("ottla --config wrong.properties topics list")


def test_certificates_are_for_their_hosts_and_no_file_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "secure"
    assert main(["certs", str(place), "--host", "kafka.example", "--host", "10.0.0.1"]) == 0
    assert main(["certs", str(place), "--client", "alice"]) == 0
    for name in ("ca", "ca-key", "broker", "alice"):
        assert (place / f"{name}.pem").stat().st_mode & 0o077 == 0, "others can read it"
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(place / "broker.pem")
    client = ssl.create_default_context(cafile=str(place / "ca.pem"))
    client.load_cert_chain(place / "alice.pem")
    assert place.stat().st_mode & 0o777 == 0o700, "what else is written there, as passwords, is nobody else's, too"
    before = (place / "broker.pem").read_bytes()
    capsys.readouterr()
    assert main(["certs", str(place), "--host", "x"]) == 1
    assert "is there already" in capsys.readouterr().err
    assert (place / "broker.pem").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "for whom?"),
        (("--client", "ca"), "choose another one"),
        (("--client", "../x"), "choose another one"),
    ],
)
def test_what_cannot_be_made_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certs", str(tmp_path), *arguments]) == 1
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    place = tmp_path / "secure"
    place.mkdir(mode=0o755)
    assert main(["certs", str(place), "--client", "alice"]) == 0
    assert place.stat().st_mode & 0o777 == 0o755


def _ends(path: Path) -> datetime:
    [found] = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", path.read_text(), re.DOTALL)
    return x509.load_pem_x509_certificate(found.encode()).not_valid_after_utc


def test_no_certificate_is_good_for_longer_than_its_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certs", str(tmp_path), "--client", "alice", "--days", "1"]) == 0
    assert "good for 1 day." in capsys.readouterr().err
    assert main(["certs", str(tmp_path), "--client", "bob"]) == 0
    ends = _ends(tmp_path / "ca.pem")
    assert _ends(tmp_path / "bob.pem") == ends
    assert f"good until {ends:%Y-%m-%d}, when the authority ends" in capsys.readouterr().err


def test_an_authority_with_the_key_of_another_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "other"):
        assert main(["certs", str(tmp_path / name), "--client", "alice"]) == 0
    (tmp_path / "one" / "ca-key.pem").write_bytes((tmp_path / "other" / "ca-key.pem").read_bytes())
    assert main(["certs", str(tmp_path / "one"), "--client", "bob"]) == 1
    assert "do not belong together" in capsys.readouterr().err
    assert not (tmp_path / "one" / "bob.pem").exists()
