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
    ],
)
def test_o5_reset_policies(policy: str, expected: int | None) -> None:
    assert reset_time(policy, 100_000_000) == expected


@pytest.mark.parametrize("policy", ["by_duration:", "by_duration:1D", "by_duration:P"])
def test_o5_a_bad_duration_is_a_config_error(policy: str) -> None:
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        reset_time(policy, 0)


def test_c3_an_unknown_reset_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"earliest, latest, none or by_duration"):
        consumer_config({"bootstrap.servers": "a:1", "auto.offset.reset": "first"})
