"""Patterns that clients send: RE2's syntax, a whole match, and limits."""

import pytest

from ottla.base.limits import MAX_PATTERN_CHARACTERS
from ottla.base.patterns import PatternError, compile_pattern

MATCHES = [
    ("", "", True),
    ("abc", "abc", True),
    ("abc", "abcd", False),
    ("abc", "zabc", False),
    ("a|ab", "ab", True),
    ("sink-[0-9]+", "sink-42", True),
    ("sink-[0-9]+", "sink-", False),
    (r"sink\.v1-\d{1,2}", "sink.v1-07", True),
    (r"sink\.v1-\d{1,2}", "sinkxv1-07", False),
    ("(?P<slot>x)(?<y>y)", "xy", True),
    ("^a$", "a", True),
    (r"\Aa\z", "a", True),
    ("a$", "a\n", False),
    (".", "\n", False),
    ("(?s).", "\n", True),
    ("(?i)Sink[A-C]", "sINKb", True),
    ("日本.", "日本語", True),
    # What our own matcher, before RE2, did not know.
    (r"sink\b-1", "sink-1", True),
    (r"\pL+", "größe", True),
    ("[[:alpha:]]+-[[:digit:]]+", "sink-1", True),
    ("a(?i)B", "ab", True),
    (r"\Qa.b\E", "a.b", True),
]


@pytest.mark.parametrize(("pattern", "text", "matches"), MATCHES)
def test_what_matches(pattern: str, text: str, matches: bool) -> None:
    assert compile_pattern(pattern).matches(text) is matches


REFUSED = ["(", ")", "a)", "[a", "*a", "a\\", r"\1", "(?=a)", "(?<!a)", "(?P<x", "[z-a]", "a{2,1}", "a{1001}"]
TOO_LARGE = [
    "a" * (MAX_PATTERN_CHARACTERS + 1),  # too long to be read
    r"(?:\pL?){1000}",  # too much memory
    "(?:.?){1000}",  # too many steps
    "((a{40}){40}){40}",
    "|".join([r"\pL"] * 11),  # too slow to be read: a tenth of a millisecond each
    "a|" + "|".join([r"\PL"] * 495),
    "(" * 9_000,
]


@pytest.mark.parametrize("pattern", REFUSED + TOO_LARGE)
def test_what_is_refused(pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)
    assert capfd.readouterr() == ("", ""), "a client's mistake is told to the client, not to the operator"


def test_a_pattern_as_long_as_allowed_is_compiled() -> None:
    text = "a" * MAX_PATTERN_CHARACTERS
    assert compile_pattern(text).matches(text)


def test_patterns_that_stop_a_backtracking_matcher_are_answered(capfd: pytest.CaptureFixture[str]) -> None:
    # Python's `re` would take longer than the sun has left.
    assert not compile_pattern("(a+)+b").matches("a" * 200)
    assert not compile_pattern("(a|a)*b").matches("a" * 200)
    assert not compile_pattern("(.*)*" * 10 + "x").matches("y" * 200)
    # Larger than the memory of RE2's faster way, so it takes the slower one, and says nothing.
    assert not compile_pattern("(?:.?){500}x").matches("y" * 200)
    assert capfd.readouterr() == ("", "")


def test_no_pattern_is_kept_after_its_request() -> None:
    # The library would give the same object again: it keeps the last 128, with up to a megabyte each.
    first, second = compile_pattern("sink-[0-9]+"), compile_pattern("sink-[0-9]+")
    assert first._compiled is not second._compiled
