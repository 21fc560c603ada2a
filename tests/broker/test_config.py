"""The broker's configuration: where it comes from, what is refused, what topics fall back on."""

import re
from pathlib import Path

import pytest

from ottla.base.errors import ConfigError
from ottla.base.properties import read_properties
from ottla.broker.config import BrokerConfig, from_environment, from_file, from_options
from ottla.broker.config_keys import STANDARD_AUTHORIZER
from ottla.broker.listeners import Endpoint, Listener
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
    assert config.listeners[0].endpoint == ("127.0.0.1", 0)


#: What `config/server.properties` of Apache Kafka 4.3 sets.
SERVER = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}
#: What broker.properties and controller.properties have otherwise.
BROKER = {
    "process.roles": "broker",
    "node.id": "2",
    "listeners": "PLAINTEXT://localhost:9092",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "log.dirs": "/tmp/kraft-broker-logs",
}
CONTROLLER = {
    "process.roles": "controller",
    "listeners": "CONTROLLER://:9093",
    "advertised.listeners": "CONTROLLER://localhost:9093",
    "log.dirs": "/tmp/kraft-controller-logs",
}


def _file(directory: Path, values: dict[str, str]) -> Path:
    path = directory / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


def test_kafkas_own_server_properties_are_used_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = configure(config_file=_file(tmp_path, SERVER))
    assert config.listeners == (Listener("PLAINTEXT", Endpoint("", 9092), advertised=Endpoint("localhost", 9092)),)
    assert config.data_dir == Path("/tmp/kraft-combined-logs")
    # Those of its settings that are not the default and are for nothing are named.
    said = caplog.messages[0]
    assert "inter.broker.listener.name" in said
    assert "share.coordinator.state.topic.min.isr" in said
    assert "num.recovery.threads.per.data.dir" not in said, "the stop has as many threads"
    assert config.int("num.recovery.threads.per.data.dir") == 1
    assert "num.io.threads" not in said


def test_kafkas_own_broker_properties_are_used_as_they_are(tmp_path: Path) -> None:
    config = configure(config_file=_file(tmp_path, SERVER | BROKER))
    assert config.listeners[0].endpoint == ("localhost", 9092)
    assert config.int("node.id") == 2


def test_a_controller_alone_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one node is broker and controller"):
        configure(config_file=_file(tmp_path, SERVER | CONTROLLER))


def test_a_port_of_its_own_is_also_the_one_clients_are_told(tmp_path: Path) -> None:
    config = configure(config_file=_file(tmp_path, SERVER), port=0)
    assert config.listeners[0].endpoint == ("127.0.0.1", 0)
    assert config.listeners[0].advertised is None


def test_a_properties_file_may_have_continued_lines(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("listeners=CONTROLLER://:9093,PLAINTEXT://0.0.0.0:9092\nlog.dirs=/tmp/\\\n  kafka\n")
    config = BrokerConfig(from_file(path))
    assert config.listeners[0].endpoint == ("0.0.0.0", 9092)
    assert config.data_dir == Path("/tmp/kafka")


def test_a_properties_file_as_java_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    text = (
        "\ufeff#written by Java\nlisteners=PLAINTEXT\\://127.0.0.1\\:0\nlog.dirs : /a\\ b\\\\\nbroker.rack=\\#1\\=\\!\n"
    )
    path.write_text(text, encoding="utf-8")
    config = BrokerConfig(from_file(path))
    assert (str(config.listeners[0].endpoint), str(config.data_dir), config.text("broker.rack")) == (
        "127.0.0.1:0",
        "/a b\\",
        "#1=!",
    )
    path.write_text("broker.rack=a\\ \nnum.partitions = 3 \r\ncluster.id=MkU3OEVBNTcwNTJENDM2Qk\n")
    config = BrokerConfig(from_file(path))
    assert (config.text("broker.rack"), config.int("num.partitions")) == ("a", 3)
    assert config.text("cluster.id") == "MkU3OEVBNTcwNTJENDM2Qk"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"process.roles": "controller"}, "a controller alone has no use here"),
        ({"cluster.id": "xxx"}, "22 characters"),
        ({"log.dirs": ""}, "log.dirs"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BrokerConfig(given)


def test_a_properties_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "blank.key  the value==\n"
        'jaas Module required username="a";\n'
        "tab\t: x\n"
        'quoted=\\"q\\" \\d \\\\ \\u00e9\\ud83d\\ude00 \\t|\n'
        "a\\ key\\==1\n"
    )
    assert read_properties(path) == {
        "blank.key": "the value==",
        "jaas": 'Module required username="a";',
        "tab": "x",
        "quoted": '"q" d \\ \u00e9\U0001f600 \t|',
        "a key=": "1",
    }


@pytest.mark.parametrize("line", ["no-separator", "=value", "a.key=\\u004"])
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
    ("key", "value", "said"),
    [
        ("listener.security.protocol.map", "PLAINTEXT:SSH", "PLAINTEXT is to speak SSH; there are PLAINTEXT, SSL"),
        ("listeners", "EXTERNAL://:9092", "does not say what EXTERNAL speaks"),
        ("listeners", "CONTROLLER://:9093", "none for clients"),
        ("listeners", "PLAINTEXT://:9092,PLAINTEXT://:9095", "named twice"),
        ("listeners", "PLAINTEXT://:notaport", "a port from 0 to 65535"),
        ("listeners", "PLAINTEXT://:\u00b2", "a port from 0 to 65535"),
        ("listeners", "localhost:9092", "expected NAME://host:port"),
        ("listeners", "", "must not be empty"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "nobody can connect to"),
        ("listeners", "SSL://h:9092,PLAINTEXT://h:9092", "both on h:9092"),
        ("advertised.listeners", "OTHER://here:9092", "there is no OTHER"),
        ("advertised.listeners", "CONTROLLER://here:9092", "PLAINTEXT is missing"),
        ("listener.security.protocol.map", "PLAINTEXT", "expected NAME:PROTOCOL"),
        ("log.dirs", "/a,/b", "exactly one directory"),
        ("group.min.session.timeout.ms", "99999999", "is above"),
        ("log.cleanup.policy", "shred", "must be some of: compact, delete"),
        ("log.retention.minutes", "0", "log.retention.minutes must be at least 1, or -1"),
        ("log.segment.bytes", "1000", "must be at least 1048576"),
        ("offsets.topic.segment.bytes", "1000", "must be at least 1048576"),
        ("transaction.state.log.segment.bytes", "1000", "must be at least 1048576"),
        ("compression.gzip.level", "0", "must be from 1 to 9"),
        ("controller.quorum.voters", "1@a:1,2@b:1,3@c:1", "Ottla is one node"),
        ("group.coordinator.rebalance.protocols", "consumer", "classic cannot be left out"),
        ("group.consumer.migration.policy", "sideways", "must be one of: DISABLED"),
        ("share.coordinator.state.topic.min.isr", "99999", "at most 32767"),
        ("remote.log.manager.task.retry.jitter", "0.6", "at most 0.5"),
        # Known, and refused because to ignore them would break a promise.
        ("ssl.allow.dn.changes", "true", "no such choice"),
        ("sasl.jaas.config", "hunter2", "listener.name.<name>.plain.sasl.jaas.config"),
        ("authorizer.class.name", "a.B", "must be one of: , org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("client.quota.callback.class", "a.B", "Java classes cannot be run"),
        ("remote.log.storage.system.enable", "true", "no tiered storage"),
        ("zookeeper.connect", "a:1", "ZooKeeper"),
        ("super.users", "User:a;b", "'b' is no principal"),
        ("listener.name.other.ssl.client.auth", "none", "no such listener; their names"),
    ],
)
def test_values_that_cannot_be_used_are_refused_with_the_reason(key: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        BrokerConfig({key: value})
    assert "hunter2" not in str(refused.value)


def test_keys_that_are_refused_may_be_given_with_their_default() -> None:
    given = {
        "ssl.protocol": "TLSv1.3",
        "authorizer.class.name": "",
        "log.flush.interval.messages": "9223372036854775807",
    }
    assert BrokerConfig(given).without_effect() == ()


def test_settings_of_tls_and_sasl_have_no_effect_without_such_a_listener() -> None:
    given = {"ssl.client.auth": "required", "sasl.enabled.mechanisms": "PLAIN"}
    assert BrokerConfig(given).without_effect() == ("sasl.enabled.mechanisms", "ssl.client.auth")
    assert BrokerConfig({**given, "listeners": "SSL://:1"}).without_effect() == ("sasl.enabled.mechanisms",)
    assert BrokerConfig({**given, "listeners": "SASL_SSL://:1"}).without_effect() == ("ssl.client.auth",)
    both = "SASL_SSL://:1,SSL://:2"
    assert BrokerConfig({**given, "listeners": both}).without_effect() == ()


def test_settings_of_the_authorizer_have_no_effect_without_it() -> None:
    given = {"super.users": "User:CN=a,O=b;User:c", "audit.log.allowed": "true"}
    assert BrokerConfig(given).without_effect() == ("audit.log.allowed", "super.users")
    guarded = BrokerConfig({**given, "authorizer.class.name": STANDARD_AUTHORIZER})
    assert guarded.without_effect() == ()
    assert guarded.super_users == ("User:CN=a,O=b", "User:c")


def test_the_audit_file_has_failed_logins_without_an_authorizer_too() -> None:
    assert BrokerConfig({"audit.log.path": "a"}).without_effect() == ("audit.log.path",)
    assert BrokerConfig({"audit.log.path": "a", "listeners": "SASL_SSL://:1"}).without_effect() == ()


def test_values_are_in_any_case_where_kafka_says_so() -> None:
    config = BrokerConfig({"group.consumer.migration.policy": "Upgrade", "log.cleanup.policy": ""})
    assert config.text("group.consumer.migration.policy") == "Upgrade"
    assert config.list("log.cleanup.policy") == ()


def test_two_spellings_of_one_key() -> None:
    assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b"}).data_dir == Path("/b")
    assert BrokerConfig({"log.dirs": "/b", "log.dir": "/a"}).data_dir == Path("/b")
    assert BrokerConfig({"broker.id": "7", "node.id": "7"}).int("node.id") == 7
    with pytest.raises(ConfigError, match="they must be the same"):
        BrokerConfig({"broker.id": "7", "node.id": "8"})


def test_a_listener_of_any_name_may_speak_plaintext() -> None:
    config = BrokerConfig(
        {
            "listeners": "INSIDE://[::1]:9092,QUORUM://:9093",
            "listener.security.protocol.map": "inside:plaintext,quorum:SASL_SSL",
            "controller.listener.names": "quorum",
        }
    )
    assert config.listeners[0].endpoint == ("::1", 9092)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.5, "0.5"), (0.0, "0.0"), (1e7, "1.0E7"), (12345678.9, "1.23456789E7"), (0.00012, "1.2E-4")],
)
def test_numbers_are_shown_as_java_shows_them(value: float, shown: str) -> None:
    assert render(value) == shown


def test_topics_fall_back_on_the_broker_in_kafkas_order() -> None:
    assert default_value(BrokerConfig(), "retention.ms") == 168 * 3_600_000
    assert default_value(BrokerConfig({"log.retention.minutes": 2}), "retention.ms") == 120_000
    assert default_value(BrokerConfig({"log.retention.minutes": 2, "log.retention.ms": 5}), "retention.ms") == 5
    assert default_value(BrokerConfig({"log.retention.hours": -3}), "retention.ms") == -1


def test_a_topics_own_setting_wins() -> None:
    topic = TopicConfig(BrokerConfig({"log.retention.ms": 5}), {"retention.ms": "7"})
    assert topic["retention.ms"] == 7
    assert LogConfig.of(topic).retention_ms == 7


def test_a_topic_in_conflict_with_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match="conflict"):
        TopicConfig(BrokerConfig(), {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError, match="conflict"):
        TopicConfig(BrokerConfig({"log.cleaner.max.compaction.lag.ms": 5}), {"min.compaction.lag.ms": "10"})


def test_segments_may_be_small_for_those_who_say_so() -> None:
    with pytest.raises(ConfigError, match="1048576"):
        TopicConfig(BrokerConfig(), {"segment.bytes": "1000"})
    assert LogConfig.of(TopicConfig(BrokerConfig(), {"internal.segment.bytes": "1000"})).segment_bytes == 1000


def test_every_topic_key_has_a_value() -> None:
    values = {name: render(default_value(BrokerConfig(), name)) for name in TOPIC_KEYS}
    assert [name for name, value in values.items() if value is None] == ["internal.segment.bytes"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"group.consumer.session.timeout.ms": "70000"}, "it must be from 45000"),
        ({"group.consumer.min.heartbeat.interval.ms": "20000"}, "is above group.consumer.max.heartbeat.interval.ms"),
        (
            {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "5000"},
            "must be below group.consumer.session.timeout.ms",
        ),
    ],
)
def test_settings_of_consumer_groups_must_agree(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        BrokerConfig(given)
