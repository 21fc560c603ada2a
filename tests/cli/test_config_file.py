"""SPEC X1: `ottla --config client.properties`: a Java client's file, and no secret of it in an error."""

from pathlib import Path

import pytest

from ottla.cli.app import run
from ottla.cli.common import admin_config, use_config_file
from ottla.client.config.admin import admin_config as parsed

_JAVA = r"""# of a Java client
bootstrap.servers=127.0.0.1:1
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
  username="alice" password="hunter2";
group.id=readers
default.api.timeout.ms=300
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(_JAVA)
    return path


def test_x1_a_java_clients_file_is_used_as_it_is(file: Path) -> None:
    use_config_file(file)
    try:
        config = parsed(admin_config("127.0.0.1:9092"))
    finally:
        use_config_file(None)
    assert config.bootstrap_servers == ("127.0.0.1:9092",), "a command that names its broker itself keeps it"
    assert config.default_api_timeout_ms == 300
    assert config.security.protocol == "SASL_SSL"
    assert config.security.sasl is not None
    assert config.security.sasl.username == "alice"
    assert config.security.sasl.password.reveal() == "hunter2"
    assert parsed(admin_config("127.0.0.1:9092")).security.sasl is None


def test_x1_the_command_line_comes_before_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", str(file), "topics", "list"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
    # also when the default is named: it must not be the file's cluster that is changed
    for named in ("127.0.0.1:9", "127.0.0.1:9092"):
        assert run(["--config", str(file), "topics", "list", "--bootstrap", named]) == 1
        said = capsys.readouterr().err
        assert named in said
        assert "hunter2" not in said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sasl.pasword=hunter2", "did you mean sasl.password"),
        ("MIIEvQhunter2", "1: expected key=value"),
        ("security.protocol=SASL_SSL\nsasl.password=hunter2", "set sasl.mechanism"),
        ("security.protocol=SSL\nssl.truststore.location=a.jks\nssl.truststore.password=hunter2", "keytool"),
    ],
)
def test_x1_a_bad_file_is_told_without_its_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)
    assert run(["--config", str(path), "topics", "list"]) == 1
    said = capsys.readouterr().err
    assert why in said
    assert "hunter2" not in said


def test_x1_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", str(tmp_path / "absent"), "topics", "list"]) == 1
    assert "cannot read" in capsys.readouterr().err
