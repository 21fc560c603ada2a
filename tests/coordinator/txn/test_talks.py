"""Our coordinator answers the talks as Apache Kafka 4.3.0 did, and writes the same states."""

from __future__ import annotations

import pytest

from tests.coordinator.txn.conversation import OurConversation
from tests.coordinator.txn.talks import LONG_TALKS, TALKS, recorded

ALL_TALKS = {**TALKS, **LONG_TALKS}


@pytest.mark.parametrize("name", ALL_TALKS)
def test_t5_answers_are_those_of_apache_kafka(name: str) -> None:
    ours = OurConversation(f"x{name}")
    ALL_TALKS[name](ours)
    assert ours.transcript == recorded()[name]


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
