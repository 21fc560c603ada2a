"""`subscribePattern` in Java's syntax."""

import string

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
        (r"(?=t)\p{Alpha}", ("topic", "1t"), ("1", "abc")),
        (r"^(?!b)[\p{Digit}a]+$", ("1a",), ("b", "A")),
        (r"^(?!b)[\P{Alnum}a]+$", ("a-a.",), ("ab",)),
        (r"^(?!b)\P{Punct}+$", ("ab1",), ("a.b", "b")),
        (r"^(?!b)\Qa.b\E(?<rest>c)$", ("a.bc",), ("axbc",)),
        (r"^[\Q[a&&]\E]+$", ("a", "[a&]"), ("b",)),
        (r"^[]a]\[&&[a\&&-]$", ("a[&&-", "][&&a"), ("a[&&b",)),
    ],
)
def test_s1_a_pattern_is_found_as_java_finds_it(pattern: str, meant: tuple[str, ...], others: tuple[str, ...]) -> None:
    is_meant = topic_pattern(pattern)
    assert [each for each in (*meant, *others) if is_meant(each)] == list(meant)


@pytest.mark.parametrize("ahead", ["", "(?=)"])
def test_s1_java_s_names_of_classes_mean_the_same_wherever_they_stand(ahead: str) -> None:
    """RE2 finds the pattern, and Python where it looks ahead."""
    ascii_letters = [chr(n) for n in range(128)]
    classes = {
        "Lower": string.ascii_lowercase,
        "Upper": string.ascii_uppercase,
        "Alpha": string.ascii_letters,
        "Digit": string.digits,
        "Alnum": string.ascii_letters + string.digits,
        "Punct": string.punctuation,
        "Graph": string.ascii_letters + string.digits + string.punctuation,
        "Print": string.ascii_letters + string.digits + string.punctuation + " ",
        "Blank": " \t",
        "Cntrl": "".join(map(chr, range(32))) + "\x7f",
        "XDigit": string.hexdigits,
        "Space": string.whitespace,
        "ASCII": "".join(ascii_letters),
    }
    for name, meant in classes.items():
        inside, outside = (topic_pattern(f"{ahead}^{each}$") for each in (f"[\\p{{{name}}}]", f"\\p{{{name}}}"))
        others = [topic_pattern(f"{ahead}^{each}$") for each in (f"[\\P{{{name}}}]", f"\\P{{{name}}}")]
        for letter in (*ascii_letters, "\x80", "ж", chr(0x10FFFF)):
            assert inside(letter) is outside(letter) is (letter in meant), (name, letter)
            assert [other(letter) for other in others] == [letter not in meant] * 2, (name, letter)


def test_s1_what_is_no_pattern_is_told() -> None:
    with pytest.raises(ConfigError, match="subscribePattern \\( is no regular expression"):
        topic_pattern("(")


@pytest.mark.parametrize(
    "pattern",
    ["[a-z&&[^bc]]", "[a-z&&bc]", "t[a-d[m-p]]?", "[[:alpha:]]", r"[\p{Alpha}&&x]", "(?!x)[^a[b]]", "[a&&&b]"],
)
def test_s1_classes_of_which_java_makes_others_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"subscribePattern .*: Java reads (&&|\[) between brackets as .*: name the"):
        topic_pattern(pattern)
