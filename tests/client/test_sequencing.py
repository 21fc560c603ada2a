"""SPEC P4, P5: whatever is lost, the log holds every acknowledged record once and in order."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.client.core.sequencing import NO_IDENTITY, ProducerIdentity, Sequencer, Verdict, last_sequence
from ottla.wire.errors import ErrorCode
from tests.client.sequencing_model import TP, Batch, Producer

_STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 3)),
    st.tuples(st.just("produce"), st.integers(1, 3)),
    st.tuples(st.just("round trips"), st.integers(1, 6)),
    st.tuples(st.just("send"), st.just(0)),
    st.tuples(st.just("serve"), st.just(0)),
    st.tuples(st.sampled_from(["refuse", "refuse after append"]), st.just(0)),
    st.tuples(st.just("hear"), st.just(0)),
    st.tuples(st.just("break"), st.integers(0, 5)),
)
_STEPS_WITH_EXPIRY = st.one_of(_STEPS, st.tuples(st.sampled_from(["give up", "too large", "invalid"]), st.just(0)))
_MOVES = st.tuples(st.sampled_from(["move", "hear late", "lose late"]), st.just(0))

_INTRODUCED = [("produce", 1), ("serve", 0), ("hear", 0)]
_HUNG_AND_MOVED = [*_INTRODUCED, ("produce", 1), ("serve", 0), ("move", 0)]


def run(steps: list[tuple[str, int]]) -> Producer:
    producer = Producer()
    for step, number in steps:
        match step:
            case "add":
                producer.add(number)
            case "produce":
                producer.add(number)
                producer.send()
            case "round trips":
                for _ in range(number):
                    producer.add(1)
                    producer.send()
                    producer.serve()
                    producer.hear()
            case "send":
                producer.send()
            case "serve":
                producer.serve()
            case "refuse":
                producer.serve(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            case "refuse after append":
                producer.serve(ErrorCode.NOT_LEADER_OR_FOLLOWER, after_append=True)
            case "too large":
                producer.serve(ErrorCode.MESSAGE_TOO_LARGE)
            case "invalid":
                producer.serve(ErrorCode.INVALID_RECORD)
            case "move":
                producer.move()
            case "hear late":
                producer.hear_late()
            case "lose late":
                producer.lose_late()
            case "hear":
                producer.hear()
            case "break":
                producer.break_connection(number)
            case "give up":
                producer.give_up()
    producer.finish()
    return producer


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.one_of(_STEPS, _MOVES), max_size=60))
@example([("produce", 1), ("produce", 1), ("refuse", 0), ("serve", 0)])
@example([*_HUNG_AND_MOVED, ("round trips", 6), ("lose late", 0)])
def test_p4_any_loss_of_requests_or_answers_leaves_every_record_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    producer = run(steps)
    assert producer.leader.log == [record for batch in producer.all for record in batch.records]
    assert all(batch.settled == "acknowledged" for batch in producer.all)


@settings(max_examples=400, deadline=None)
@given(st.lists(_STEPS_WITH_EXPIRY, max_size=60))
@example([("produce", 1), ("produce", 1), ("break", 2), ("give up", 0)])
@example([("produce", 1), ("produce", 1), ("break", 1), ("give up", 0)])
@example([("produce", 1), ("produce", 1), ("break", 0), ("give up", 0), ("produce", 2)])
@example([("produce", 2), ("break", 1), ("send", 0), ("too large", 0), ("hear", 0)])
@example([*_INTRODUCED, ("produce", 2), ("add", 1), ("break", 1), ("send", 0), ("send", 0), ("too large", 0)])
@example([*_INTRODUCED, ("produce", 2), ("add", 1), ("break", 1), ("send", 0), ("send", 0), *[("too large", 0)] * 2])
@example([*_INTRODUCED, ("produce", 1), ("produce", 1), ("invalid", 0), ("hear", 0), ("break", 0)])
def test_p5_a_batch_given_up_on_harms_no_other(steps: list[tuple[str, int]]) -> None:
    _assert_nothing_is_harmed(run(steps))


_A_HOLE_BEHIND_IT = [("produce", 1), ("invalid", 0), ("hear", 0)]


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.one_of(_STEPS_WITH_EXPIRY, _MOVES), max_size=60))
@example([*_HUNG_AND_MOVED, *_A_HOLE_BEHIND_IT, ("lose late", 0)])
@example([*_HUNG_AND_MOVED, ("round trips", 6), *_A_HOLE_BEHIND_IT, ("lose late", 0)])
@example([*_INTRODUCED, ("produce", 1), ("refuse after append", 0), ("move", 0), *_A_HOLE_BEHIND_IT, ("hear late", 0)])
@example([*_INTRODUCED, ("produce", 2), ("refuse after append", 0), ("hear", 0), ("send", 0), ("too large", 0)])
def test_p5_nor_when_the_partition_moves_and_answers_come_out_of_order(steps: list[tuple[str, int]]) -> None:
    _assert_nothing_is_harmed(run(steps))


def _assert_nothing_is_harmed(producer: Producer) -> None:
    log = producer.leader.log
    assert log == sorted(set(log)), "twice, or out of order"
    for batch in producer.all:
        if batch.settled == "acknowledged":
            assert set(batch.records) <= set(log)
        else:
            assert set(batch.records) <= set(log) or not set(batch.records) & set(log)
    assert all(batch.settled for batch in producer.all)


def test_kip126_halves_take_the_sequences_of_the_whole_and_go_before_what_was_behind_it() -> None:
    producer = run(
        [
            ("produce", 1), ("serve", 0), ("hear", 0),
            ("produce", 8), ("produce", 2), ("produce", 1),
            ("too large", 0), ("serve", 0), ("serve", 0), ("hear", 0), ("hear", 0), ("hear", 0),
            ("too large", 0), ("send", 0), ("too large", 0),
        ]
    )  # fmt: skip
    assert producer.leader.log == sorted(record for batch in producer.all for record in batch.records)
    assert len(producer.leader.log) == 12
    assert producer.leader.epoch == 0, "no epoch was spent on it"
    assert all(batch.settled == "acknowledged" for batch in producer.all)
    assert [batch.record_count for batch in producer.all] == [1, 2, 2, 4, 2, 1]


_REFUSED_WHEN_REPEATED = [("send", 0), ("too large", 0), ("hear", 0)]


@given(st.integers(0, 2), st.lists(_STEPS, max_size=20))
def test_kip126_a_batch_that_was_perhaps_written_is_split_and_nothing_is_there_twice(
    served: int, more: list[tuple[str, int]]
) -> None:
    producer = run([*_INTRODUCED, ("produce", 4), ("produce", 2), ("break", served), *_REFUSED_WHEN_REPEATED, *more])
    log = producer.leader.log
    assert log == sorted(set(log))
    assert {(0, 0), *((2, n) for n in range(2))} <= set(log)
    assert {record for record in log if record[0] == 1} == {(1, n) for n in range(4)}
    halves = [batch.settled for batch in producer.all if batch.number == 1]
    assert halves == ["acknowledged" if served == 0 else "failed"] * len(halves)
    assert len(halves) == 2


def test_kip126_a_record_that_is_too_large_alone_leaves_the_rest_of_a_doubtful_batch_unknown() -> None:
    for served, there in ((0, 2), (1, 4)):
        again = [("send", 0), ("too large", 0), ("hear", 0)]
        producer = run([*_INTRODUCED, ("produce", 2), ("break", served), *_REFUSED_WHEN_REPEATED, *again, ("add", 1)])
        assert [batch.settled for batch in producer.all] == ["acknowledged", "failed", "failed", "acknowledged"]
        assert len(producer.leader.log) == there


def identified(*, transactional: bool = False) -> Sequencer:
    sequencer = Sequencer(transactional=transactional)
    sequencer.identified(ProducerIdentity(7, 3))
    return sequencer


def test_p4_the_first_batch_goes_alone_until_the_broker_knows_the_producer() -> None:
    sequencer = identified()
    first, second, third = Batch(0, 1), Batch(1, 1), Batch(2, 1)
    assert sequencer.may_send(first)
    sequencer.assign(first)
    assert not sequencer.may_send(second)
    # its topic is just being made; had the second one been written, the first one could not be any more
    assert sequencer.refused(first, first.identity, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1) is Verdict.RETRY
    assert not sequencer.may_send(second)
    sequencer.acknowledged(first, 0)
    for batch in (second, third):
        assert sequencer.may_send(batch)
        sequencer.assign(batch)


def test_p4_a_newer_batch_waits_while_an_older_one_is_repeated() -> None:
    sequencer = identified()
    opening, first, second, third = (Batch(number, 1) for number in range(4))
    sequencer.assign(opening)
    sequencer.acknowledged(opening, 0)
    for batch in (first, second):
        assert sequencer.may_send(batch)
        sequencer.assign(batch)
    assert sequencer.refused(first, first.identity, ErrorCode.NETWORK_EXCEPTION, -1) is Verdict.RETRY
    assert sequencer.refused(second, second.identity, ErrorCode.NETWORK_EXCEPTION, -1) is Verdict.RETRY
    assert not sequencer.may_send(second)
    assert sequencer.may_send(first)
    sequencer.acknowledged(first, 1)
    assert sequencer.may_send(second)
    sequencer.acknowledged(second, 2)
    sequencer.assign(third)
    assert third.base_sequence == 3


def test_a_late_answer_of_a_transaction_that_was_given_up_on_takes_no_room_of_the_next() -> None:
    sequencer = identified(transactional=True)
    late = [Batch(number, 1) for number in range(5)]
    for batch in late:
        sequencer.assign(batch)
    sequencer.forget_partitions()
    sequencer.identified(ProducerIdentity(7, 4))
    for batch in late:
        sequencer.given_up(batch, may_be_written=True)
    assert sequencer.may_send(Batch(5, 1))


def test_p4_no_more_than_five_batches_are_unanswered() -> None:
    sequencer = identified()
    batches = [Batch(n, 1) for n in range(6)]
    for batch in batches[:5]:
        sequencer.assign(batch)
    assert not sequencer.may_send(batches[5])
    sequencer.acknowledged(batches[0], 0)
    assert sequencer.may_send(batches[5])


def test_p3_sequences_wrap_after_the_largest_int() -> None:
    sequencer = identified()
    big, after = Batch(0, 2**31 - 1), Batch(1, 2)
    sequencer.assign(big)
    sequencer.acknowledged(big, -1)
    sequencer.assign(after)
    assert after.base_sequence == 2**31 - 1
    assert last_sequence(after) == 0
    sequencer.acknowledged(after, -1)
    following = Batch(2, 1)
    sequencer.assign(following)
    assert following.base_sequence == 1


def test_p5_giving_up_raises_the_epoch_before_anything_else_is_sent() -> None:
    sequencer = identified()
    lost, following = Batch(0, 2), Batch(1, 1)
    sequencer.assign(lost)
    sequencer.given_up(lost, may_be_written=True)
    assert not sequencer.may_send(following)
    assert sequencer.resolve()
    assert sequencer.identity == ProducerIdentity(7, 4)
    assert sequencer.may_send(following)
    sequencer.assign(following)
    assert (following.identity.epoch, following.base_sequence) == (4, 0)


def test_p5_a_partition_in_doubt_keeps_no_other_waiting() -> None:
    sequencer = identified()
    doubtful, beyond = Batch(0, 2), Batch(1, 1)
    refused, elsewhere = Batch(0, 1, tp=TopicPartition("t", 1)), Batch(1, 1, tp=TopicPartition("t", 1))
    for batch in (doubtful, beyond, refused):
        sequencer.assign(batch)
        batch.on_wire = True
    for batch in (beyond, refused):
        batch.on_wire = False
        sequencer.given_up(batch, may_be_written=False)
    sequencer.resolve()
    sequencer.assign(elsewhere)
    assert (elsewhere.identity.epoch, elsewhere.base_sequence) == (4, 0)
    doubtful.on_wire, doubtful.perhaps_written = False, True
    sequencer.resolve()
    assert sequencer.may_send(doubtful)
    assert (doubtful.identity.epoch, doubtful.base_sequence) == (3, 0)
    sequencer.acknowledged(doubtful, 1)
    sequencer.resolve()
    following = Batch(2, 1)
    assert sequencer.may_send(following)
    sequencer.assign(following)
    assert (following.identity.epoch, following.base_sequence) == (4, 0), "one epoch is enough for both"


def test_p5_an_epoch_that_is_used_up_asks_for_a_new_producer_id() -> None:
    sequencer = Sequencer(transactional=False)
    sequencer.identified(ProducerIdentity(7, 2**15 - 1))
    lost = Batch(0, 1)
    sequencer.assign(lost)
    sequencer.given_up(lost, may_be_written=True)
    sequencer.resolve()
    assert sequencer.identity == NO_IDENTITY
    assert sequencer.needs_identity
    sequencer.identified(ProducerIdentity(8, 0))
    following = Batch(1, 1)
    sequencer.assign(following)
    assert (following.identity, following.base_sequence) == (ProducerIdentity(8, 0), 0)


def test_p5_a_transactional_producer_has_to_abort_instead() -> None:
    sequencer = identified(transactional=True)
    lost = Batch(0, 1)
    sequencer.assign(lost)
    sequencer.given_up(lost, may_be_written=True)
    assert not sequencer.resolve()
    assert sequencer.identity == ProducerIdentity(7, 3)


def test_a_lost_producer_state_is_answered_with_a_new_epoch() -> None:
    sequencer = identified()
    batch = Batch(0, 1)
    sequencer.assign(batch)
    assert sequencer.refused(batch, batch.identity, ErrorCode.UNKNOWN_PRODUCER_ID, 5) is Verdict.RETRY
    sequencer.resolve()
    assert (batch.identity.epoch, batch.base_sequence) == (4, 0)


def test_an_echo_of_an_older_epoch_is_only_repeated() -> None:
    sequencer = identified()
    batch = Batch(0, 1)
    sequencer.assign(batch)
    old = batch.identity
    sequencer.refused(batch, old, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    sequencer.resolve()
    assert batch.identity != old
    assert sequencer.refused(batch, old, ErrorCode.INVALID_PRODUCER_EPOCH, -1) is Verdict.RETRY


def test_partitions_count_apart() -> None:
    sequencer = identified()
    here, there = Batch(0, 2), Batch(0, 1, tp=TopicPartition("t", 1))
    sequencer.assign(here)
    sequencer.assign(there)
    assert (here.base_sequence, there.base_sequence) == (0, 0)
    assert sequencer.unanswered(TP) == 1
