"""`subscribePattern` in Java's syntax."""

import pytest

from ottla.base.errors import ConfigError
from ottla.spark.patterns import topic_pattern


@pytest.mark.parametrize(
    ("pattern", "meant", "others"),
    [
        ("orders", ("orders", "old-orders-2"), ("order", "Orders")),
        ("^orders$", ("orders",), ("old-orders",)),
        (r"^\p{Alpha}+$", ("abcXYZ",), ("abc1", "a-b")),
        (r"^[\p{Lower}_]+\p{Digit}$", ("a_b1",), ("A1", "a_b")),
        (r"^[^\p{Upper}]+$", ("a-1",), ("aB",)),
        (r"^[\P{Alnum}a]+$", ("a-a.",), ("ab",)),
        (r"^\P{Punct}+$", ("ab1",), ("a.b",)),
        (r"^\Qa.b\E$", ("a.b",), ("axb",)),
        (r"^\Q[\E\p{Alpha}", (), ("a", "b[a")),
        (r"^[\]\p{Digit}]+$", ("12",), ("a",)),
        (r"^(?<kind>events|logs)[.]", ("logs.a",), ("log.a",)),
        (r"^(?!secret)", ("public",), ("secret-1",)),
    ],
)
def test_s1_a_pattern_is_found_as_java_finds_it(pattern: str, meant: tuple[str, ...], others: tuple[str, ...]) -> None:
    is_meant = topic_pattern(pattern)
    assert [each for each in (*meant, *others) if is_meant(each)] == list(meant)


def test_s1_what_is_no_pattern_is_told() -> None:
    with pytest.raises(ConfigError, match="subscribePattern \\( is no regular expression"):
        topic_pattern("(")
