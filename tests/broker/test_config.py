"""The broker's configuration: where it comes from, what is refused, what topics fall back on."""

from pathlib import Path

import pytest

from ottla.base.errors import ConfigError
from ottla.broker.config import BrokerConfig, from_environment, from_file, from_options
from ottla.broker.process import configure
from ottla.broker.topic_config import TOPIC_KEYS, TopicConfig, default_value, render
from ottla.log.config import LogConfig


def test_defaults_are_kafkas() -> None:
    config = BrokerConfig()
    assert config.int("num.partitions") == 1
    assert config.int("offsets.topic.num.partitions") == 50
    assert config.int("message.max.bytes") == 1_048_588
    assert config.flag("auto.create.topics.enable")


def test_an_unknown_key_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"num\.partition.*did you mean num\.partitions"):
        BrokerConfig({"num.partition": "3"})


def test_later_sources_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# a comment\nnum.partitions=2\nlog.retention.ms = 1000\nlog.dirs=/tmp/one\nbroker.id: 7\n")
    monkeypatch.setenv("OTTLA_NUM_PARTITIONS", "3")
    config = configure(config_file=path, options=["log.retention.ms=5"], data_dir=tmp_path, port=0)
    assert config.int("num.partitions") == 3
    assert config.int("log.retention.ms") == 5
    assert config.int("node.id") == 7
    assert config.data_dir == tmp_path
    assert config.listener == ("127.0.0.1", 0)


def test_a_kafka_properties_file_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
        "listeners=CONTROLLER://:9093,PLAINTEXT://0.0.0.0:9092\ninter.broker.listener.name=PLAINTEXT\n"
        "num.network.threads=3\nlog.dirs=/tmp/\\\n  kafka\n"
    )
    config = BrokerConfig(from_file(path))
    assert config.listener == ("0.0.0.0", 9092)
    assert config.data_dir == Path("/tmp/kafka")


@pytest.mark.parametrize("line", ["no equals sign", "=value"])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "bad.properties"
    path.write_text(f"num.partitions=1\n{line}\n")
    with pytest.raises(ConfigError, match=":2"):
        from_file(path)


def test_options_and_environment_must_be_keys() -> None:
    with pytest.raises(ConfigError, match="key=value"):
        from_options(["num.partitions"])
    with pytest.raises(ConfigError, match=r"log\.retention\.ms"):
        from_environment({"OTTLA_LOG_RETENTION_MSS": "1"})
    assert from_environment({"OTTLA_LOG_RETENTION_MS": "1", "HOME": "/"}) == {"log.retention.ms": "1"}
    assert from_environment({"OTTLA_LOG_DIR": "/d", "OTTLA_INTERPRETED": "1"}) == {"log.dirs": "/d"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listeners", "SSL://:9092"),
        ("listeners", "PLAINTEXT://:notaport"),
        ("listeners", "localhost:9092"),
        ("log.dirs", "/a,/b"),
        ("group.min.session.timeout.ms", "99999999"),
        ("log.cleanup.policy", "shred"),
    ],
)
def test_values_that_cannot_be_used_are_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError):
        BrokerConfig({key: value})


def test_topics_fall_back_on_the_broker_in_kafkas_order() -> None:
    assert default_value(BrokerConfig(), "retention.ms") == 168 * 3_600_000
    assert default_value(BrokerConfig({"log.retention.minutes": 2}), "retention.ms") == 120_000
    assert default_value(BrokerConfig({"log.retention.minutes": 2, "log.retention.ms": 5}), "retention.ms") == 5
    assert default_value(BrokerConfig({"log.retention.hours": -1}), "retention.ms") == -1


def test_a_topics_own_setting_wins() -> None:
    topic = TopicConfig(BrokerConfig({"log.retention.ms": 5}), {"retention.ms": "7"})
    assert topic["retention.ms"] == 7
    assert LogConfig.of(topic).retention_ms == 7


def test_every_topic_key_has_a_value() -> None:
    values = {name: render(default_value(BrokerConfig(), name)) for name in TOPIC_KEYS}
    assert [name for name, value in values.items() if value is None] == []
