"""Configuration keys: unknown ones, bad values, synonyms of types, defaults."""

import pytest

from ottla.base.config import REQUIRED, ConfigKey, ConfigSet, ConfigType, between, not_empty, one_of, sendable
from ottla.base.errors import ConfigError

KEYS = ConfigSet.of(
    "consumer",
    [
        ConfigKey("bootstrap.servers", ConfigType.LIST, REQUIRED, "host:port, separated by commas", not_empty),
        ConfigKey("fetch.min.bytes", ConfigType.INT, 1, validator=between(0)),
        ConfigKey("retention.ms", ConfigType.LONG, 604_800_000),
        ConfigKey("enable.auto.commit", ConfigType.BOOLEAN, True),
        ConfigKey("auto.offset.reset", ConfigType.STRING, "latest", validator=one_of("earliest", "latest", "none")),
        ConfigKey("dirty.ratio", ConfigType.DOUBLE, 0.5, validator=between(0, 1)),
        ConfigKey("key.deserializer", ConfigType.OBJECT, None),
        ConfigKey("group.id", ConfigType.STRING, None),
    ],
)
NEEDED = {"bootstrap.servers": "a:1"}


def test_defaults_fill_what_is_not_given() -> None:
    values = KEYS.parse({"bootstrap.servers": "a:1, b:2", "fetch.min.bytes": "7", "enable.auto.commit": " FALSE "})
    assert values["bootstrap.servers"] == ("a:1", "b:2")
    assert values["fetch.min.bytes"] == 7
    assert values["enable.auto.commit"] is False
    assert values["auto.offset.reset"] == "latest"
    assert set(values) == set(KEYS.keys)


def test_c3_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"Unknown consumer configuration fetch.min.byte; did you mean fetch.min.bytes\?"
    ):
        KEYS.parse({**NEEDED, "fetch.min.byte": 1})


def test_a_required_key_that_is_missing_says_what_it_is() -> None:
    with pytest.raises(ConfigError, match=r"Missing required consumer configuration bootstrap.servers: host:port"):
        KEYS.parse({})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("fetch.min.bytes", "many", "a whole number of 32 bits"),
        ("fetch.min.bytes", 1.5, "a whole number"),
        ("fetch.min.bytes", True, "a whole number"),
        ("fetch.min.bytes", -1, "must be at least 0"),
        ("fetch.min.bytes", 2**31, "must be at most 2147483647"),
        ("retention.ms", 2**63, "must be at most 9223372036854775807"),
        ("enable.auto.commit", "yes", "true or false"),
        ("enable.auto.commit", 1, "true or false"),
        ("auto.offset.reset", "newest", "must be one of: earliest, latest, none"),
        ("dirty.ratio", 1.5, "must be at most 1"),
        ("dirty.ratio", "half", "a number"),
        ("dirty.ratio", "0_1.0", "a number"),
        ("dirty.ratio", "nan", "a number"),
        ("dirty.ratio", float("inf"), "a number"),
        ("fetch.min.bytes", "1_000", "a whole number"),
        ("fetch.min.bytes", "0x10", "a whole number"),
        ("fetch.min.bytes", "", "a whole number"),
        ("fetch.min.bytes", "1 0", "a whole number"),
        ("bootstrap.servers", "", "must not be empty"),
        ("group.id", 5, "a string"),
    ],
)
def test_a_bad_value_says_what_is_accepted(name: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError, match=f"configuration {name}: .*{said}"):
        KEYS.parse({**NEEDED, name: value})


@pytest.mark.parametrize("name", ["bootstrap.servers", "fetch.min.bytes", "enable.auto.commit", "auto.offset.reset"])
def test_none_is_no_value_of_a_key_that_has_a_default(name: str) -> None:
    with pytest.raises(ConfigError, match=f"Invalid value None for configuration {name}: must not be null"):
        KEYS.parse({**NEEDED, name: None})


def test_none_is_the_value_of_a_key_that_has_no_default() -> None:
    assert KEYS.parse({**NEEDED, "group.id": None})["group.id"] is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", None),
        ("\u00fc" * 16_383, None),
        ("\u00fc" * 16_384, "must take at most 32767 bytes in UTF-8, and takes 32768"),
        ("a\udcff", "must be text that UTF-8 can write"),
    ],
)
def test_what_no_request_can_carry_is_refused(value: str, problem: str | None) -> None:
    said = sendable(value)
    assert said == problem or (said is not None and problem is not None and said.startswith(problem))


@pytest.mark.parametrize(("text", "number"), [("+5", 5), (" 7 ", 7), ("-0", 0), ("\u0665", 5), ("007", 7)])
def test_whole_numbers_are_read_as_java_reads_them(text: str, number: int) -> None:
    assert KEYS.parse({**NEEDED, "fetch.min.bytes": text})["fetch.min.bytes"] == number


@pytest.mark.parametrize(("text", "number"), [(".5", 0.5), ("1e-2", 0.01), ("1.", 1.0), ("+0.5", 0.5)])
def test_numbers_are_read_as_java_reads_them(text: str, number: float) -> None:
    assert KEYS.parse({**NEEDED, "dirty.ratio": text})["dirty.ratio"] == number


def test_two_keys_of_one_name_are_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="defined twice"):
        ConfigSet.of("topic", [ConfigKey("a", ConfigType.INT, 1), ConfigKey("a", ConfigType.INT, 2)])
