"""Regular expressions from the wire: what `re` says, in linear time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.regex import RegexError, compile_regex

MATCHES = [
    ("", "", True),
    ("abc", "abc", True),
    ("abc", "abcd", False),
    ("sink-[0-9]+", "sink-42", True),
    ("sink-[0-9]+", "sink-", False),
    (r"sink\.v1-\d{1,2}", "sink.v1-07", True),
    (r"sink\.v1-\d{1,2}", "sinkxv1-07", False),
    ("(a|b|)c", "c", True),
    ("(?:a|b)*?c", "ababc", True),
    ("(?P<slot>x)(?<y>y)", "xy", True),
    ("^a$", "a", True),
    (r"\Aa\z", "a", True),
    ("a^b", "ab", False),
    (".", "\n", False),
    ("(?s).", "\n", True),
    ("(?i)Sink[A-C]", "sINKb", True),
    ("[^a-c]x", "dx", True),
    ("[]a]+", "]a]", True),
    ("[^]a]", "]", False),
    ("[a-]", "-", True),
    (r"[\d\-x]{3}", "1-x", True),
    (r"\x41\t", "A\t", True),
    ("a{2}", "aa", True),
    ("a{2,}", "aaaa", True),
    ("a{,2}", "a{,2}", True),
    ("{", "{", True),
    ("(a*)*", "aaaa", True),
    ("日本.", "日本語", True),
]


@pytest.mark.parametrize(("pattern", "text", "matches"), MATCHES)
def test_what_matches(pattern: str, text: str, matches: bool) -> None:
    assert compile_regex(pattern).fullmatch(text) is matches


REFUSED = ["(", ")", "a)", "[a", "*a", "a|*", "a\\", r"\1", "(?=a)", "(?<!a)", "(?<=a)", "(?P<x", "[z-a]", "a{2,1}"]


@pytest.mark.parametrize("pattern", [*REFUSED, "a{1001}", r"\x4", "((a{40}){40}){40}", "a" * 2_001, "(" * 9_000])
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(RegexError):
        compile_regex(pattern)


def test_patterns_that_stop_a_backtracking_matcher_are_answered() -> None:
    # Python's `re` would take longer than the sun has left.
    assert not compile_regex("(a+)+b").fullmatch("a" * 200)
    assert not compile_regex("(a|a)*b").fullmatch("a" * 200)
    assert not compile_regex("(.*)*" * 10 + "x").fullmatch("y" * 200)


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", "^", "$", "-"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}"])).map(lambda two: f"(?:{two[0]}){two[1]}"),
    ),
    max_leaves=6,
)


@settings(max_examples=300)
@given(patterns, st.text("ab-c", max_size=6))
def test_agrees_with_re(pattern: str, text: str) -> None:
    assert compile_regex(pattern).fullmatch(text) == (re.fullmatch(pattern, text) is not None)
