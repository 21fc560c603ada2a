"""SPEC P4, P5, T13 on the whole ProducerCore: whatever is lost or moves, every record is there once, in order, or told.

Histories that once wrote a record twice are examples.
"""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.client.core.intents import Channel, Connect, NotSentError, RefreshMetadata
from ottla.client.core.producer.identity import MAX_EPOCH
from tests.client.core.producer.histories import (
    READ_LATE,
    Step,
    acknowledged,
    assert_no_acknowledged_record_is_harmed,
    assert_nothing_is_harmed,
    assert_transactions_are_whole,
    run,
    run_transactions,
)
from tests.client.core.producer.world import COORDINATOR, PARTITIONS

#: Partition 0 is led by broker 1 at first, partition 1 too.
_NODES = st.sampled_from([1, 2])
_STEPS = st.one_of(
    st.tuples(st.just("produce"), st.integers(1, 3)),
    st.tuples(st.just("produce elsewhere"), st.integers(1, 3)),
    st.tuples(st.just("round trips"), st.integers(1, 6)),
    st.tuples(st.sampled_from(["serve", "hear", "refuse", "refuse after append"]), _NODES),
    st.tuples(st.sampled_from(["break 0", "break 1", "break 2", "break 5"]), _NODES),
    st.tuples(st.just("wait"), st.sampled_from([1, 20, 500, 2_500])),
)
_MOVES = st.tuples(st.sampled_from(["move", "move untold"]), st.integers(0, PARTITIONS - 1))
_DEPOSED = st.tuples(st.sampled_from(["depose", "tell next"]), st.integers(0, PARTITIONS - 1))
_GIVE_UPS = st.one_of(
    st.tuples(st.sampled_from(["too large", "invalid", "leave behind"]), _NODES),
    st.tuples(st.sampled_from(["expire", "haunt"]), st.just(0)),
)

_INTRODUCED: list[Step] = [("serve", 1), ("hear", 1)]
_THERE_AND_BACK: list[Step] = [("depose", 0), ("depose", 0), ("round trips", 1)]
_LOST_AND_ASKED_ELSEWHERE: list[Step] = [
    ("produce", 1),
    ("break 1", 1),
    ("tell next", 0),
    ("wait", 500),
    ("serve", 2),
    ("hear", 2),
]
_HUNG_AND_MOVED: list[Step] = [*_INTRODUCED, ("produce", 1), ("serve", 1), ("move", 0)]
_A_HOLE_BEHIND_IT: list[Step] = [("produce", 1), ("invalid", 2), ("hear", 2)]


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.one_of(_STEPS, _MOVES), max_size=50))
@example([("produce", 1), ("refuse", 1), ("serve", 1)])
@example([*_HUNG_AND_MOVED, ("round trips", 6), ("break 0", 1)])
@example([*_HUNG_AND_MOVED, ("produce", 1), ("serve", 2), ("hear", 2), ("wait", 500), ("hear", 1)])
def test_p4_any_loss_of_requests_or_answers_leaves_every_record_once_and_in_order(steps: list[Step]) -> None:
    world = run(steps, delivery_timeout_ms=600_000)
    assert_nothing_is_harmed(world)
    assert acknowledged(world) == [record.value for record in world.records]
    assert sorted(world.leaders[0].values + world.leaders[1].values) == acknowledged(world)


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.one_of(_STEPS, _MOVES, _DEPOSED), max_size=50))
@example([*_INTRODUCED, *_THERE_AND_BACK, *_LOST_AND_ASKED_ELSEWHERE])
def test_p4_leaders_that_do_not_know_that_they_were_deposed_have_nothing_written_twice(steps: list[Step]) -> None:
    world = run(steps, delivery_timeout_ms=600_000)
    assert_nothing_is_harmed(world)
    assert acknowledged(world) == [record.value for record in world.records]


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.one_of(_STEPS, _MOVES, _DEPOSED, _GIVE_UPS), max_size=50))
def test_p5_nor_do_batches_that_are_given_up_on_meanwhile(steps: list[Step]) -> None:
    assert_nothing_is_harmed(run(steps))


@settings(max_examples=2500, deadline=None)
@given(st.lists(st.one_of(_STEPS, _MOVES, _GIVE_UPS), max_size=50))
@example([("produce", 1), ("produce", 1), ("break 2", 1), ("expire", 0)])
@example([("produce", 1), ("produce", 1), ("break 0", 1), ("expire", 0), ("produce", 2)])
@example([*_INTRODUCED, ("produce", 2), ("produce", 1), ("break 1", 1), ("too large", 1), ("too large", 1)])
@example([*_INTRODUCED, ("produce", 1), ("produce", 1), ("invalid", 1), ("hear", 1), ("break 0", 1)])
@example([*_HUNG_AND_MOVED, *_A_HOLE_BEHIND_IT, ("break 0", 1)])
@example([*_HUNG_AND_MOVED, ("round trips", 6), *_A_HOLE_BEHIND_IT, ("break 0", 1)])
@example([*_INTRODUCED, ("produce", 1), ("refuse after append", 1), ("move", 0), *_A_HOLE_BEHIND_IT, ("hear", 1)])
@example([*_INTRODUCED, ("produce", 2), ("refuse after append", 1), ("hear", 1), ("wait", 20), ("too large", 1)])
@example([*READ_LATE, ("round trips", 4), ("haunt", 1)])
def test_p5_a_batch_given_up_on_harms_no_other(steps: list[Step]) -> None:
    assert_nothing_is_harmed(run(steps))


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.one_of(_STEPS, _MOVES, _GIVE_UPS), max_size=50))
@example([*_INTRODUCED, ("produce", 1), ("invalid", 1), ("produce", 1), ("wait", 2_500), ("expire", 0), ("produce", 1)])
def test_p5_epochs_that_are_used_up_and_topics_that_are_forgotten_harm_no_record(steps: list[Step]) -> None:
    world = run(steps, first_epoch=MAX_EPOCH - 1, metadata_max_idle_ms=5_000)
    assert_no_acknowledged_record_is_harmed(world)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.one_of(_STEPS, _MOVES, _GIVE_UPS), max_size=40))
def test_without_idempotence_every_record_is_settled_and_what_was_acknowledged_is_there(steps: list[Step]) -> None:
    world = run(steps, enable_idempotence=False)
    for partition, leader in world.leaders.items():
        here = {record.value for record in world.records if record.partition == partition}
        assert set(acknowledged(world)) & here <= set(leader.values)


_TXN_STEPS = st.one_of(
    _STEPS,
    _MOVES,
    _GIVE_UPS,
    st.tuples(st.sampled_from(["commit", "abort", "begin"]), st.just(0)),
    st.tuples(st.sampled_from(["serve", "hear", "break 0", "break 1"]), st.just(COORDINATOR)),
    st.tuples(st.just("round"), st.integers(1, 4)),
)


_LOST_ON_THE_WIRE: list[Step] = [("produce", 1), ("round", 3), ("produce", 1), ("break 0", 1), ("expire", 0)]


@settings(max_examples=2500, deadline=None)
@given(st.lists(_TXN_STEPS, max_size=50))
@example([*_LOST_ON_THE_WIRE, ("abort", 0), ("round", 4)])
@example([("produce", 1), ("serve", 1), ("break 0", 1), ("expire", 0), ("abort", 0), ("round", 4), ("begin", 0)])
def test_t13_transactions_are_whole_in_the_second_protocol(steps: list[Step]) -> None:
    assert_transactions_are_whole(*run_transactions(steps, implicit=True))


@settings(max_examples=2500, deadline=None)
@given(st.lists(_TXN_STEPS, max_size=50))
@example([*_LOST_ON_THE_WIRE, ("abort", 0), ("round", 4)])
@example([("produce", 1), ("serve", COORDINATOR), ("wait", 2_500), ("wait", 500)])
def test_t13_and_in_the_first(steps: list[Step]) -> None:
    assert_transactions_are_whole(*run_transactions(steps, implicit=False))


def test_a_request_that_could_not_be_sent_is_sent_over_a_new_connection() -> None:
    """The shell's connection was gone before the core heard of it: that must not be tried again and again."""
    world = run([("serve", 1), ("hear", 1)])
    world.send(0, 1)
    [asked] = world.wires[1].requests
    world.wires[1].requests.clear()
    world.core.failed(asked.ask.ticket, NotSentError("gone"), world.now_s)
    connect, *others = [intent for intent in world.core.take_intents() if not isinstance(intent, RefreshMetadata)]
    assert connect == Connect(1)
    assert not others, "nothing is sent before it is connected"
    world.feed(world.core.connected, 1, Channel.MAIN)
    world.settle()
    assert_nothing_is_harmed(world)
    assert acknowledged(world) == [0, 1]
