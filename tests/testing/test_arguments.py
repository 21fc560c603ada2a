"""A wrong argument of `ottla.testing` is told by a sentence, at the call that has it."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from ottla.testing import AsyncBroker, Broker, Fault, Faults, History, note_final_state
from ottla.testing.faults.rules import FaultSpec, Harm, Side
from ottla.wire.apis import ApiKey


def _any(value: object) -> Any:
    """For calls that the type checker refuses."""
    return value


def _fault() -> Fault:
    return Fault(FaultSpec(Harm.DROP, ApiKey.PRODUCE, Side.REQUEST))


_WRONG: list[tuple[Callable[[Any, Any], object], str]] = [
    (lambda broker, faults: broker.clock.advance(1.5), "the time to skip, in milliseconds, must be an int, not 1.5"),
    (lambda broker, faults: broker.clock.advance("60"), "the time to skip, in milliseconds, must be an int, not '60'"),
    (lambda broker, faults: broker.clock.advance(None), "must be an int, not None"),
    (lambda broker, faults: broker.clock.advance(True), "must be an int, not True"),
    (lambda broker, faults: broker.clock.advance(10**18), "a broker's clock skips up to a hundred years"),
    (lambda broker, faults: broker.clock.advance(-1), "time does not run backwards: -1 ms"),
    (lambda broker, faults: broker.slow_disk("1"), "slow_disk: must be a number of seconds, not '1'"),
    (lambda broker, faults: broker.slow_disk(float("inf")), "a disk takes some seconds longer, or 0, up to a year"),
    (lambda broker, faults: broker.stop("1"), "timeout_s must be a number of seconds, not '1'"),
    (lambda broker, faults: faults.drop("Produce", nth="3"), "nth must be an int, not '3'"),
    (lambda broker, faults: faults.drop("Produce", nth=1.0), "nth must be an int, not 1.0"),
    (lambda broker, faults: faults.repeat("Produce", times="all"), "times must be an int, not 'all'"),
    (lambda broker, faults: faults.repeat("Produce", client_id=b"c"), "client_id, or None for all clients, must be a"),
    (lambda broker, faults: faults.cut(7), "client_id, or None for all clients, must be a str, not 7"),
    (lambda broker, faults: faults.delay("Fetch", "1"), "a delay must be a number of seconds, not '1'"),
    (lambda broker, faults: faults.delay("Fetch", 1e300), "a delay is a positive number of seconds, up to a year"),
    (lambda broker, faults: faults.delay("Fetch", 10**400), "a delay is a positive number of seconds, up to a year"),
    (lambda broker, faults: faults.fail("Produce", 7), "an error must be a str, not 7"),
    (lambda broker, faults: faults.fail("Produce", None), "an error must be a str, not None"),
    (lambda broker, faults: _fault().wait(_any("1")), "timeout_s must be a number of seconds, not '1'"),
    (lambda broker, faults: _fault().wait(1e300), "timeout_s is a number of seconds, or 0, up to a year"),
    (lambda broker, faults: _fault().wait(times=_any("1")), "times must be an int, not '1'"),
    (lambda broker, faults: Broker(port=_any("9092")), "port must be an int, not '9092'"),
    (lambda broker, faults: Broker(port=70_000), "port is at most 65535; it cannot be 70000"),
    (lambda broker, faults: Broker(port=-1), "port is 0 for any free one, or its number; it cannot be -1"),
    (lambda broker, faults: Broker(start_timeout_s=_any("1")), "start_timeout_s must be a number of seconds, not '1'"),
]


@pytest.mark.parametrize(("call", "said"), _WRONG, ids=[said for _, said in _WRONG])
def test_a_wrong_argument_is_told(call: Callable[[Any, Any], object], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        call(Broker(), Faults())


async def test_in_the_loop_it_is_the_same() -> None:
    async with AsyncBroker() as broker:
        for wrong in (1.5, "1", 10**18):
            with pytest.raises((TypeError, ValueError), match=r"milliseconds|a hundred years"):
                broker.clock.advance(_any(wrong))
        with pytest.raises(TypeError, match="slow_disk: must be a number of seconds, not '1'"):
            broker.slow_disk(_any("1"))
        with pytest.raises(TypeError, match="partitions must be an int, not '3'"):
            await broker.create_topics("t", partitions=_any("3"))
        with pytest.raises(TypeError, match="timeout_s must be a number of seconds, not '1'"):
            await broker.records("t", timeout_s=_any("1"))
        with pytest.raises(TypeError, match="members, or None for any number, must be an int, not '2'"):
            await broker.wait_for_group("g", members=_any("2"))


def test_after_a_hundred_years_the_broker_still_answers() -> None:
    with Broker() as broker:
        broker.create_topics("t")
        broker.clock.advance(3_155_760_000_000)
        assert broker.records("t") == []


@pytest.mark.parametrize(
    ("topics", "groups", "told"),
    [
        ("orders", [], "a list of topics is needed, not a str: write ['orders']"),
        (["orders"], "billing", "a list of groups is needed, not a str: write ['billing']"),
        (["orders"], [b"billing"], "groups must be str, not b'billing'"),
    ],
)
def test_one_name_is_no_list_of_topics_or_groups(topics: Any, groups: Any, told: str) -> None:
    """A text would be taken for its letters, and the positions of other groups be noted."""
    history = History()
    with pytest.raises(TypeError, match=re.escape(told)):
        note_final_state(history, {"bootstrap.servers": "localhost:1"}, topics, groups)
