"""SPEC O5, C3: the consumer's keys."""

import pytest

from ottla.base.errors import ConfigError
from ottla.client.config.consumer import consumer_config, reset_time


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("earliest", -2),
        ("latest", -1),
        ("none", None),
        ("by_duration:P1D", 100_000_000 - 86_400_000),
        ("by_duration:PT1H30M", 100_000_000 - 5_400_000),
        ("by_duration:PT0.5S", 99_999_500),
        ("by_duration:P10000D", 0),
    ],
)
def test_o5_reset_policies(policy: str, expected: int | None) -> None:
    assert reset_time(policy, 100_000_000) == expected


@pytest.mark.parametrize("policy", ["by_duration:", "by_duration:1D", "by_duration:P", f"by_duration:P{'9' * 400}D"])
def test_o5_a_bad_duration_is_a_config_error(policy: str) -> None:
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        reset_time(policy, 0)


def test_c3_an_unknown_reset_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"earliest, latest, none or by_duration"):
        consumer_config({"bootstrap.servers": "a:1", "auto.offset.reset": "first"})


_WITH_A_GROUP = {"bootstrap.servers": "a:1", "group.id": "g"}


@pytest.mark.parametrize(
    ("key", "value", "instead"),
    [
        ("partition.assignment.strategy", "range", "group.remote.assignor"),
        ("session.timeout.ms", 10_000, "consumer.session.timeout.ms"),
        ("heartbeat.interval.ms", 1_000, "consumer.heartbeat.interval.ms"),
    ],
)
def test_g20_what_only_a_classic_member_decides_cannot_be_set_with_the_consumer_protocol(
    key: str, value: object, instead: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^{key} cannot be set when group\.protocol=consumer: .*{instead}"):
        consumer_config({**_WITH_A_GROUP, "group.protocol": "consumer", key: value})


def test_g20_the_brokers_assignor_cannot_be_set_for_a_classic_member() -> None:
    with pytest.raises(ConfigError, match=r"group\.remote\.assignor cannot be set when group\.protocol=classic"):
        consumer_config({**_WITH_A_GROUP, "group.remote.assignor": "uniform"})


def test_g20_the_protocols_own_keys_are_accepted() -> None:
    config = consumer_config({**_WITH_A_GROUP, "group.protocol": "consumer", "group.remote.assignor": "uniform"})
    assert (config.group_protocol, config.group_remote_assignor) == ("consumer", "uniform")
    assert consumer_config(_WITH_A_GROUP).group_protocol == "classic"
    assert consumer_config({**_WITH_A_GROUP, "group.protocol": "CONSUMER"}).group_protocol == "consumer"


def test_g20_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"classic, consumer"):
        consumer_config({**_WITH_A_GROUP, "group.protocol": "share"})


@pytest.mark.parametrize("text", ["", "a b", "..", "x" * 250])
def test_g15_an_instance_id_is_checked_by_kafkas_rule(text: str) -> None:
    with pytest.raises(ConfigError, match=r"configuration group\.instance\.id: "):
        consumer_config({**_WITH_A_GROUP, "group.instance.id": text})
