"""SPEC C1: topics by name, by pattern, or partitions by hand."""

import re

import pytest

from ottla.client.core.consumer.subscription import Kind, Subscription, SubscriptionPattern
from ottla.client.errors import IllegalStateError
from tests.client.core.consumer.rig import snapshot


def test_c1_a_pattern_matches_whole_names_and_leaves_internal_topics_alone() -> None:
    subscription = Subscription()
    subscription.subscribe(re.compile("a.*|__.*"))
    assert subscription.match(snapshot(a1=1, ba1=1, __offsets=1), exclude_internal=True)
    assert subscription.topics == {"a1"}
    assert not subscription.match(snapshot(a1=2), exclude_internal=True)
    assert subscription.match(snapshot(a1=1, a2=1), exclude_internal=True)


def test_c1_topics_patterns_and_partitions_by_hand_exclude_each_other() -> None:
    subscription = Subscription()
    subscription.assign()
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        subscription.subscribe(["t"])
    subscription.clear()
    subscription.subscribe(["t"])
    with pytest.raises(IllegalStateError, match="unsubscribe"):
        subscription.assign()
    subscription.clear()
    assert subscription.kind is Kind.NONE
    with pytest.raises(TypeError, match="not a str"):
        subscription.subscribe("t")
    with pytest.raises(TypeError, match="a list of topics or a compiled pattern, not 5"):
        subscription.subscribe(5)  # type: ignore[arg-type]


def test_g20_a_pattern_for_the_brokers_needs_the_consumer_protocol() -> None:
    with pytest.raises(IllegalStateError, match=r"group\.protocol=consumer"):
        Subscription().subscribe(SubscriptionPattern("t.*"))
    subscription = Subscription(brokers_match=True)
    subscription.subscribe(SubscriptionPattern("t.*"))
    assert (subscription.broker_pattern, subscription.by_group, subscription.topics) == ("t.*", True, frozenset())
    subscription.subscribe(["t"])
    assert subscription.broker_pattern is None
    subscription.subscribe(SubscriptionPattern("t.*"))
    subscription.clear()
    assert subscription.broker_pattern is None
    subscription.subscribe(SubscriptionPattern("u.*"))


@pytest.mark.parametrize("wrong", ["", None, b"t"])
def test_c1_a_pattern_is_a_text_that_is_not_empty(wrong: object) -> None:
    with pytest.raises(TypeError, match="not empty"):
        SubscriptionPattern(wrong)  # type: ignore[arg-type]


def test_c1_a_pattern_that_no_request_can_carry_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a SubscriptionPattern must be text that UTF-8 can write"):
        SubscriptionPattern("t\udcff")
