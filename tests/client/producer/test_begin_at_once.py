"""`begin_transaction` of the blocking producer is done in the caller's thread, where a Ctrl-C can end it anywhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from ottla import Producer
from ottla.client.core.producer.transaction_state import TxnState
from ottla.client.core.producer.transactions import Transactions
from ottla.client.errors import IllegalStateError
from ottla.testing import Broker
from tests.client.core.producer.by_hand import ByHand


@contextmanager
def interrupted_before(line: int) -> Iterator[None]:
    """A Ctrl-C before the so many-th line of `Transactions.begin`."""
    passed = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal passed
        if frame.f_code is not Transactions.begin.__code__:
            return None
        if event == "line":
            passed += 1
            if passed == line:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("line", range(1, 6))
def test_a_begin_that_was_interrupted_has_begun_nothing(line: int) -> None:
    world = ByHand("t", transactional_id="x")
    world.call(world.core.init_transactions)
    world.tell_versions(2)
    world.identify(1, 0)
    transactions = world.core.transactions
    assert transactions is not None
    with interrupted_before(line), pytest.raises(KeyboardInterrupt):
        transactions.begin()
    assert transactions.state is TxnState.READY
    transactions.begin()


def test_what_cannot_begin_says_why(ottla_broker: Broker) -> None:
    servers = ottla_broker.bootstrap_servers
    with (
        Producer({"bootstrap.servers": servers}) as plain,
        pytest.raises(IllegalStateError, match=r"transactional\.id"),
    ):
        plain.begin_transaction()
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "begins-at-once"})
    with pytest.raises(IllegalStateError, match=r"call init_transactions\(\) first"):
        producer.begin_transaction()
    producer.init_transactions()
    producer.begin_transaction()
    with pytest.raises(IllegalStateError, match="a transaction is open"):
        producer.begin_transaction()
    producer.commit_transaction()
    producer.begin_transaction()
    producer.abort_transaction()
    producer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        producer.begin_transaction()
