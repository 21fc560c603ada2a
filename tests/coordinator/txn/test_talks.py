"""Our coordinator answers the talks as Apache Kafka 4.3.0 did, and writes the same states."""

from __future__ import annotations

import pytest

from ottla.coordinator.txn.config import TransactionConfig
from tests.coordinator.txn.conversation import OurConversation
from tests.coordinator.txn.talks import LONG_TALKS, TALKS, TWO_PHASE_TALKS, recorded, two_phase_forbidden

ALL_TALKS = {**TALKS, **LONG_TALKS}


@pytest.mark.parametrize("name", ALL_TALKS)
def test_t5_answers_are_those_of_apache_kafka(name: str) -> None:
    ours = OurConversation(f"x{name}")
    ALL_TALKS[name](ours)
    assert ours.transcript == recorded()[name]


@pytest.mark.parametrize("name", TWO_PHASE_TALKS)
def test_t15_two_phase_commit_is_answered_as_apache_kafka_does(name: str) -> None:
    ours = OurConversation(f"x{name}", TransactionConfig(two_phase_commit=True))
    TWO_PHASE_TALKS[name](ours)
    assert ours.transcript == recorded()[name]


def test_t15_two_phase_commit_that_is_not_allowed_is_refused_as_by_apache_kafka() -> None:
    ours = OurConversation("x", TransactionConfig(two_phase_commit=False))
    two_phase_forbidden(ours)
    assert ours.transcript == recorded()["two_phase_forbidden"]


def test_t5_the_log_goes_through_kafkas_states() -> None:
    # Read from Apache Kafka's own __transaction_state after the same talk.
    ours = OurConversation("x")
    TALKS["mixed_protocols"](ours)
    assert ours.runtime.states() == [
        "Empty",
        *("Ongoing", "PrepareCommit", "CompleteCommit"),
        *("Ongoing", "PrepareAbort", "CompleteAbort"),
        *("PrepareAbort", "CompleteAbort"),
        "Empty",
    ]
