"""SPEC P3, P4, P5: which batch may go, with which sequence, in which epoch."""

from dataclasses import dataclass

from ottla.base.types import TopicPartition
from ottla.client.core.producer.answers import SentAs, Standing
from ottla.client.core.producer.identity import NO_IDENTITY, NO_SEQUENCE, SEVERAL, ProducerIdentity
from ottla.client.core.producer.sequencing import Sequencer, last_sequence

TP = TopicPartition("t", 0)
BROKER, OTHER = 1, 2


@dataclass(eq=False)
class Batch:
    """A batch as far as it is counted."""

    place: int
    record_count: int
    tp: TopicPartition = TP
    identity: ProducerIdentity = NO_IDENTITY
    base_sequence: int = NO_SEQUENCE
    sequence_reset: bool = False
    on_wire: bool = False
    perhaps_written: bool = False
    whole_perhaps_written: bool = False
    sent_to: int = BROKER
    half: tuple[int, ...] = ()

    @property
    def number(self) -> tuple[int, ...]:
        return (self.place, *self.half)


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
    first.perhaps_written = True  # refused, and put back
    assert not sequencer.may_send(second)
    sequencer.acknowledged(first, offset_known=True)
    for batch in (second, third):
        assert sequencer.may_send(batch)
        sequencer.assign(batch)


def test_p4_a_newer_batch_waits_while_an_older_one_is_repeated() -> None:
    sequencer = identified()
    opening, first, second, third = (Batch(number, 1) for number in range(4))
    sequencer.assign(opening)
    sequencer.acknowledged(opening, offset_known=True)
    for batch in (first, second):
        assert sequencer.may_send(batch)
        sequencer.assign(batch)
    first.perhaps_written = second.perhaps_written = True  # the connection broke
    assert not sequencer.may_send(second)
    assert sequencer.may_send(first)
    sequencer.acknowledged(first, offset_known=True)
    assert sequencer.may_send(second)
    sequencer.acknowledged(second, offset_known=True)
    sequencer.assign(third)
    assert third.base_sequence == 3


def test_a_late_answer_of_a_transaction_that_was_given_up_on_takes_no_room_of_the_next() -> None:
    sequencer = identified(transactional=True)
    late = [Batch(number, 1) for number in range(5)]
    for batch in late:
        sequencer.assign(batch)
    sequencer.identified(ProducerIdentity(7, 4))
    for batch in late:
        batch.perhaps_written = True
        sequencer.given_up(batch)
    assert sequencer.may_send(Batch(5, 1))


def test_p4_no_more_than_five_batches_are_unanswered() -> None:
    sequencer = identified()
    batches = [Batch(n, 1) for n in range(6)]
    for batch in batches[:5]:
        sequencer.assign(batch)
    assert not sequencer.may_send(batches[5])
    sequencer.acknowledged(batches[0], offset_known=True)
    assert sequencer.may_send(batches[5])


def test_p3_sequences_wrap_after_the_largest_int() -> None:
    sequencer = identified()
    big, after = Batch(0, 2**31 - 1), Batch(1, 2)
    sequencer.assign(big)
    sequencer.acknowledged(big, offset_known=False)
    sequencer.assign(after)
    assert after.base_sequence == 2**31 - 1
    assert last_sequence(after) == 0
    sequencer.acknowledged(after, offset_known=False)
    following = Batch(2, 1)
    sequencer.assign(following)
    assert following.base_sequence == 1


def test_p5_giving_up_raises_the_epoch_before_anything_else_is_sent() -> None:
    sequencer = identified()
    lost, following = Batch(0, 2), Batch(1, 1)
    sequencer.assign(lost)
    lost.perhaps_written = True
    sequencer.given_up(lost)
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
        sequencer.given_up(batch)
    sequencer.resolve()
    sequencer.assign(elsewhere)
    assert (elsewhere.identity.epoch, elsewhere.base_sequence) == (4, 0)
    doubtful.on_wire, doubtful.perhaps_written = False, True
    sequencer.resolve()
    assert sequencer.may_send(doubtful)
    assert (doubtful.identity.epoch, doubtful.base_sequence) == (3, 0)
    sequencer.acknowledged(doubtful, offset_known=True)
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
    lost.perhaps_written = True
    sequencer.given_up(lost)
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
    lost.perhaps_written = True
    sequencer.given_up(lost)
    assert not sequencer.resolve()
    assert sequencer.identity == ProducerIdentity(7, 3)


def test_what_was_lost_at_the_leader_is_counted_again_in_a_new_epoch() -> None:
    sequencer = identified()
    batch = Batch(0, 1)
    sequencer.assign(batch)
    assert sequencer.standing(batch) is Standing.NEXT
    sequencer.begin_again(batch)
    sequencer.resolve()
    assert (batch.identity.epoch, batch.base_sequence) == (4, 0)


def test_a_batch_that_was_renumbered_is_known_by_what_it_was_sent_as() -> None:
    sequencer = identified()
    batch = Batch(0, 1)
    sequencer.assign(batch)
    old = batch.identity
    sequencer.begin_again(batch)
    sequencer.resolve()
    assert sequencer.sent_as(batch, old) is SentAs.FORMER
    assert sequencer.sent_as(batch, batch.identity) is SentAs.PLAIN
    assert sequencer.standing(batch) is Standing.BEHIND, "its first refusal may be an echo"
    sequencer.echoed(batch)
    assert sequencer.standing(batch) is Standing.NEXT


def test_a_batch_stands_behind_while_an_older_one_is_not_acknowledged() -> None:
    sequencer = identified()
    first, second = Batch(0, 2), Batch(1, 1)
    sequencer.assign(first)
    sequencer.assign(second)
    assert [sequencer.standing(batch) for batch in (first, second)] == [Standing.NEXT, Standing.BEHIND]
    sequencer.acknowledged(first, offset_known=True)
    assert sequencer.standing(second) is Standing.NEXT


def test_behind_a_hole_a_batch_stands_for_itself() -> None:
    sequencer = identified()
    first, second = Batch(0, 2), Batch(1, 1)
    sequencer.assign(first)
    sequencer.assign(second)
    sequencer.given_up(first)
    assert sequencer.standing(second) is Standing.NEXT


def test_kip126_halves_of_a_doubtful_batch_are_parts() -> None:
    sequencer = identified()
    whole = Batch(0, 2, perhaps_written=True)
    sequencer.assign(whole)
    halves = (Batch(0, 1, half=(0,)), Batch(0, 1, half=(1,)))
    sequencer.split(whole, halves)
    assert [half.base_sequence for half in halves] == [0, 1]
    assert [sequencer.standing(half) for half in halves] == [Standing.PART, Standing.BEHIND]
    sequencer.acknowledged(halves[0], offset_known=True)
    assert not halves[1].whole_perhaps_written, "one half was written, so the whole was not"


def test_kip126_a_half_proves_nothing_about_another_whole_behind_it() -> None:
    """The bytes of the younger one lie unread at the broker, which reads them when the second half is written."""
    sequencer = identified()
    whole, ghost = Batch(0, 2, perhaps_written=True), Batch(1, 2, perhaps_written=True)
    halves = {place: (Batch(place, 1, half=(0,)), Batch(place, 1, half=(1,))) for place in (0, 1)}
    for batch in (whole, ghost):
        sequencer.assign(batch)
    for batch in (whole, ghost):
        sequencer.split(batch, halves[batch.place])
    for half in halves[0]:
        sequencer.acknowledged(half, offset_known=True)
    assert sequencer.standing(halves[1][0]) is Standing.PART


def test_a_batch_in_doubt_may_be_elsewhere_unless_who_has_acknowledged_the_last_one_refuses_it() -> None:
    sequencer = identified()
    first, second = Batch(0, 1), Batch(1, 1, perhaps_written=True)
    sequencer.assign(first)
    sequencer.acknowledged(first, offset_known=True)
    sequencer.assign(second)
    assert sequencer.standing(second) is Standing.NEXT, "this broker had the first one, and has lost it"
    for elsewhere in (OTHER, SEVERAL):
        second.sent_to = elsewhere
        assert sequencer.standing(second) is Standing.ELSEWHERE
    second.perhaps_written = False
    assert sequencer.standing(second) is Standing.NEXT, "each refusal was clear"


def test_a_hole_says_nothing_about_the_batches_before_it() -> None:
    sequencer = identified()
    before, refused, behind = Batch(0, 1, perhaps_written=True), Batch(1, 1), Batch(2, 1, perhaps_written=True)
    for batch in (before, refused, behind):
        sequencer.assign(batch)
    sequencer.given_up(refused)
    assert [sequencer.standing(batch) for batch in (before, behind)] == [Standing.ELSEWHERE, Standing.NEXT]


def test_a_partition_that_was_forgotten_begins_in_a_new_epoch() -> None:
    sequencer = identified()
    first, idle = Batch(0, 3), TopicPartition("idle", 0)
    old = Batch(0, 1, tp=idle)
    for batch in (first, old):
        sequencer.assign(batch)
        sequencer.acknowledged(batch, offset_known=True)
    sequencer.forget([idle])
    again = Batch(1, 1, tp=idle)
    assert sequencer.may_send(again)
    sequencer.assign(again)
    assert (again.identity.epoch, again.base_sequence) == (4, 0)
    following = Batch(1, 1)
    assert sequencer.may_send(following)
    sequencer.assign(following)
    assert (following.identity.epoch, following.base_sequence) == (4, 0), "one epoch for all of them"


def test_what_is_open_is_not_forgotten() -> None:
    sequencer = identified()
    batch = Batch(0, 1)
    sequencer.assign(batch)
    sequencer.forget([TP])
    following = Batch(0, 1)
    sequencer.assign(following)
    assert (following.identity, following.base_sequence) == (batch.identity, 1)


def test_a_transactional_producer_forgets_when_it_gets_a_new_epoch() -> None:
    sequencer = identified(transactional=True)
    batch = Batch(0, 1)
    sequencer.assign(batch)
    sequencer.acknowledged(batch, offset_known=True)
    sequencer.forget([TP])
    following = Batch(1, 1)
    sequencer.assign(following)
    assert following.base_sequence == 1, "it cannot raise its epoch by itself"


def test_partitions_count_apart() -> None:
    sequencer = identified()
    here, there = Batch(0, 2), Batch(0, 1, tp=TopicPartition("t", 1))
    sequencer.assign(here)
    sequencer.assign(there)
    assert (here.base_sequence, there.base_sequence) == (0, 0)
