"""SPEC C3, P1: Kafka's names, defaults and contradictions."""

import re
from typing import Any

import pytest

from ottla import AsyncAdmin, AsyncConsumer, AsyncProducer, exactly_once
from ottla.base.errors import ConfigError
from ottla.client.config.admin import admin_config
from ottla.client.config.consumer import consumer_config
from ottla.client.config.producer import producer_config

HERE: dict[str, object] = {"bootstrap.servers": "127.0.0.1:9092"}


def test_c3_defaults_of_the_consumer_are_kafkas() -> None:
    config = consumer_config(HERE)
    assert (config.fetch_min_bytes, config.fetch_max_wait_ms, config.fetch_max_bytes) == (1, 500, 52_428_800)
    assert (config.max_poll_records, config.max_partition_fetch_bytes) == (500, 1_048_576)
    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (45_000, 3_000)
    assert (config.max_poll_interval_ms, config.default_api_timeout_ms) == (300_000, 60_000)
    assert (config.auto_offset_reset, config.enable_auto_commit) == ("latest", True)
    assert config.isolation_level == "read_uncommitted"
    assert config.partition_assignment_strategy[0] == "range"


def test_c3_defaults_of_the_producer_are_kafkas() -> None:
    config = producer_config(HERE)
    assert (config.required_acks, config.enable_idempotence, config.retries) == (-1, True, 2**31 - 1)
    assert (config.linger_ms, config.batch_size, config.buffer_memory) == (5, 16_384, 33_554_432)
    assert (config.delivery_timeout_ms, config.request_timeout_ms) == (120_000, 30_000)
    assert config.max_in_flight_requests_per_connection == 5
    assert admin_config(HERE).default_api_timeout_ms == 60_000


def test_c3_an_unknown_key_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"max\.pol\.records; did you mean max\.poll\.records\?"):
        consumer_config({**HERE, "max.pol.records": 5})


@pytest.mark.parametrize(("key", "value"), [("linger.ms", -1), ("acks", "2"), ("batch.size", "big")])
def test_c3_a_bad_value_is_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key):
        producer_config({**HERE, key: value})


@pytest.mark.parametrize(
    "servers",
    ["a:\u00b2", "a:" + "9" * 5_000, "", "localhost", "host:0", "host:port", ":9092", "SSL://:1", "S L://a:1"],
)
def test_c3_bootstrap_servers_have_to_be_host_and_port(servers: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        producer_config({"bootstrap.servers": servers})


def test_c3_bootstrap_servers_take_names_lists_and_ipv6() -> None:
    config = producer_config({"bootstrap.servers": "a:1, [::1]:2"})
    assert config.bootstrap_addresses() == [("a", 1), ("::1", 2)]
    assert producer_config({"bootstrap.servers": ["b:3"]}).bootstrap_addresses() == [("b", 3)]


def test_c3_bootstrap_servers_may_have_a_listener_before_them_as_in_a_java_client() -> None:
    config = producer_config({"bootstrap.servers": "PLAINTEXT://a:1,SASL_SSL://[::1]:2,://b:3"})
    assert config.bootstrap_addresses() == [("a", 1), ("::1", 2), ("b", 3)]


def test_c3_a_heartbeat_interval_not_below_the_session_timeout_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms must be set lower than the session\.timeout\.ms"):
        consumer_config({**HERE, "heartbeat.interval.ms": 45_000})


def test_c3_a_heartbeat_interval_above_a_third_of_the_session_timeout_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer_config({**HERE, "heartbeat.interval.ms": 20_000})
    assert "more than a third of session.timeout.ms" in caplog.text


def test_c3_auto_commit_needs_a_group() -> None:
    with pytest.raises(ConfigError, match=r"enable\.auto\.commit"):
        consumer_config({**HERE, "enable.auto.commit": "true"})
    assert consumer_config({**HERE, "group.id": "g", "enable.auto.commit": "true"}).enable_auto_commit


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"retries": 0}, "Must set retries to non-zero when using the idempotent producer."),
        ({"acks": "1"}, "Must set acks to all in order to use the idempotent producer."),
    ],
)
def test_p1_contradictions_of_asked_for_idempotence(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        producer_config({**HERE, "enable.idempotence": True, **given})
    assert not producer_config({**HERE, **given}).enable_idempotence


def test_p1_more_than_five_requests_in_flight_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"max\.in\.flight\.requests\.per\.connection to at most 5"):
        producer_config({**HERE, "max.in.flight.requests.per.connection": 6})
    plain = producer_config(
        {**HERE, "max.in.flight.requests.per.connection": 6, "enable.idempotence": False, "acks": 1}
    )
    assert plain.max_in_flight_requests_per_connection == 6


def test_p1_a_transactional_id_needs_idempotence() -> None:
    with pytest.raises(ConfigError, match=r"Cannot set a transactional\.id without also enabling idempotence"):
        producer_config({**HERE, "transactional.id": "t", "acks": "1"})


def test_p1_the_delivery_timeout_covers_linger_and_request() -> None:
    with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms should be equal to or larger than"):
        producer_config({**HERE, "delivery.timeout.ms": 1_000})
    assert producer_config({**HERE, "request.timeout.ms": 200_000}).delivery_timeout_ms == 200_005


def test_c3_a_java_client_s_other_keys_are_taken_or_refused_with_a_reason() -> None:
    others = {
        "receive.buffer.bytes": "65536",
        "metric.reporters": "com.example.Reporter",
        "enable.metrics.push": "false",
    }
    assert consumer_config({**HERE, **others}) == consumer_config(HERE)
    for key, value, why in (
        ("interceptor.classes", "com.example.Interceptor", "Java classes cannot be called"),
        ("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256", "ssl.enabled.protocols chooses the versions"),
        ("sasl.kerberos.service.name", "kafka", "SCRAM and OAUTHBEARER are"),
        ("receive.buffer.bytes", "-2", "must be at least -1"),
    ):
        with pytest.raises(ConfigError, match=f"configuration {key}: .*{why}"):
            producer_config({**HERE, key: value})


@pytest.mark.parametrize("text", ["\udcff", "x" * 32_768])
@pytest.mark.parametrize("key", ["client.id", "group.id", "client.rack", "group.remote.assignor"])
def test_c3_a_consumers_names_must_fit_into_a_request(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"configuration {key}: must"):
        consumer_config({"bootstrap.servers": "a:1", "group.id": "g", "group.protocol": "consumer", key: text})


@pytest.mark.parametrize("text", ["\udcff", "x" * 32_768])
@pytest.mark.parametrize("key", ["client.id", "transactional.id"])
def test_c3_a_producers_names_must_fit_into_a_request(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"configuration {key}: must"):
        producer_config({"bootstrap.servers": "a:1", key: text})


@pytest.mark.parametrize("given", [None, "client.properties", 5, ["acks", "all"]])
def test_what_is_no_configuration_is_said(given: Any) -> None:
    for make in (
        AsyncConsumer,
        AsyncProducer,
        AsyncAdmin,
        lambda config: exactly_once("a", "b", "t", config),
    ):
        with pytest.raises(ConfigError, match="a configuration is a dict of keys and values, not a"):
            make(given)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bootstrap.servers", "a:1,,b:2"),
        ("bootstrap.servers", "a:1,"),
        ("bootstrap.servers", ["a:1", ""]),
        ("partition.assignment.strategy", "range,,sticky"),
        ("partition.assignment.strategy", ", range"),
        ("partition.assignment.strategy", ["range", " "]),
        ("ssl.enabled.protocols", "TLSv1.3,,TLSv1.2"),
    ],
)
def test_c3_an_empty_name_in_a_list_is_refused(key: str, value: object) -> None:
    """As in Apache Kafka since 4.2 (KIP-1161); librdkafka passes over it in bootstrap.servers."""
    said = (
        f"Invalid value {value!r} for configuration {key}: a name in the list is empty: take the comma beside it away"
    )
    with pytest.raises(ConfigError, match=re.escape(said)):
        consumer_config({**HERE, key: value})
