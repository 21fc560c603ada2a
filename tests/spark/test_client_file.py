"""A properties file as `kafka.` options: what source and sink share, and no key that is none."""

from pathlib import Path

import pytest

from ottla.base.errors import ConfigError
from ottla.spark.client_file import kafka_options
from ottla.spark.options import sink_options, source_options

_FILE = """bootstrap.servers=kafka.example:9093
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.username=alice
sasl.password=hunter2
group.id=readers
acks=all
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(_FILE)
    return path


def test_x1_what_every_client_has_is_an_option_of_both_sides(file: Path) -> None:
    options = kafka_options(file)
    assert options == {
        "kafka.bootstrap.servers": "kafka.example:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": "hunter2",
    }
    assert source_options({"subscribe": "lines", **options}, streaming=True).kafka["sasl.username"] == "alice"
    assert sink_options({"sink.id": "words", **options}).client["sasl.username"] == "alice"


def test_x1_a_wrong_key_is_named_and_its_value_is_not(file: Path) -> None:
    file.write_text("sasl.pasword=hunter2")
    with pytest.raises(ConfigError, match=r"did you mean sasl\.password") as wrong:
        kafka_options(str(file))
    assert "hunter2" not in str(wrong.value)
    with pytest.raises(ConfigError, match="cannot read"):
        kafka_options(file.with_name("absent"))
