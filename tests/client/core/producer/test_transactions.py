"""Transactions in the producer's core, at moments that a network seldom brings about: most once stopped a call."""

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core import intents
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.core.producer.handle import TransactionHandle
from ottla.client.core.producer.transaction_state import TxnInput, TxnState
from ottla.client.errors import (
    AbortableTransactionError,
    DisconnectedError,
    FatalProducerError,
    IllegalStateError,
    KafkaError,
    ProducerFencedError,
    RequestTimeoutError,
)
from ottla.wire.apis import ApiKey
from ottla.wire.batch import parse_header
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.messages.end_txn import EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.client.core.producer.by_hand import ByHand


def begun(transaction_version: int, **config: object) -> ByHand:
    """A producer with an open transaction."""
    producer = ByHand("a", transactional_id="x", **config)
    initializing = producer.call(producer.core.init_transactions)
    producer.tell_versions(transaction_version)
    producer.identify(7, 0)
    assert producer.result(initializing) is None
    begin(producer)
    return producer


def begin(producer: ByHand) -> None:
    assert producer.result(producer.call(producer.core.begin_transaction)) is None


def outlive_its_id(producer: ByHand) -> None:
    assert producer.core.transactions is not None
    producer.core.transactions.outlives_its_id = True


def state_of(producer: ByHand) -> TxnState:
    assert producer.core.transactions is not None
    return producer.core.transactions.state


def added(code: ErrorCode) -> AddPartitionsToTxnResponse:
    results = (AddPartitionsToTxnPartitionResult(0, code),)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(AddPartitionsToTxnTopicResult("a", results),))


def offsets_committed(code: ErrorCode) -> TxnOffsetCommitResponse:
    partitions = (TxnOffsetCommitResponsePartition(0, code),)
    return TxnOffsetCommitResponse(0, (TxnOffsetCommitResponseTopic("in", partitions),))


def test_initializing_twice_at_once_is_one_initialization() -> None:
    producer = ByHand("a", transactional_id="x")
    calls = [producer.call(producer.core.init_transactions) for _ in range(3)]
    producer.feed(producer.core.abandoned, calls[0])
    producer.tell_versions(2)
    producer.identify(7, 0)
    assert [producer.result(call) for call in calls[1:]] == [None, None]
    assert not producer.waiting(ApiKey.INIT_PRODUCER_ID)
    begin(producer)


def test_a_time_out_that_is_too_long_for_the_broker_is_named() -> None:
    producer = ByHand("a", transactional_id="x")
    waiting = producer.call(producer.core.init_transactions)
    producer.tell_versions(2)
    answer = InitProducerIdResponse(0, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    producer.answer(ApiKey.INIT_PRODUCER_ID, answer)
    error = producer.result(waiting)
    assert isinstance(error, KafkaError)
    assert "x: the broker does not allow transaction.timeout.ms=" in str(error)
    assert state_of(producer) is TxnState.FATAL_ERROR


def test_an_initialization_that_took_too_long_may_be_asked_for_again() -> None:
    producer = ByHand("a", transactional_id="x", max_block_ms=1_000)
    first, second = (producer.call(producer.core.init_transactions) for _ in range(2))
    producer.pass_time(1.0)
    assert isinstance(producer.result(first), RequestTimeoutError)
    assert isinstance(producer.result(second), RequestTimeoutError)
    again = producer.call(producer.core.init_transactions)
    producer.take(intents.AskVersions)
    producer.tell_versions(2)
    producer.identify(7, 0)
    assert producer.result(again) is None


def test_a_call_that_is_abandoned_or_took_too_long_is_not_made_later() -> None:
    producer = begun(2, max_block_ms=1_000)
    producer.send("a")
    producer.connect()
    producer.acknowledge()
    for give_up in ("abandoned", "too slow"):
        committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
        ticket = producer.asked(ApiKey.END_TXN).ticket
        if give_up == "abandoned":
            producer.feed(producer.core.abandoned, committing)
        else:
            producer.pass_time(1.0)
        assert producer.take(intents.GiveUp).ticket is ticket
    committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, 0, 7, 1))
    assert producer.result(committing) is None
    assert not producer.count(intents.GiveUp), "its answer has come"


@pytest.mark.parametrize("transaction_version", [1, 2])
@pytest.mark.parametrize("give_up", ["abandoned", "too slow"])
def test_a_transaction_whose_offsets_are_in_doubt_is_not_committed(transaction_version: int, give_up: str) -> None:
    producer = begun(transaction_version, max_block_ms=1_000)
    offsets = {TopicPartition("in", 0): OffsetAndMetadata(7)}
    offering = producer.call(producer.core.send_offsets, offsets, ConsumerGroupMetadata("g"))
    if give_up == "abandoned":
        producer.feed(producer.core.abandoned, offering)
        why = "was cancelled, so nobody knows whether its offsets are in the transaction"
    else:
        producer.pass_time(1.0)
        assert isinstance(producer.result(offering), RequestTimeoutError)
        why = "did not succeed within 1000 ms"
    error = producer.result(producer.call(producer.core.end_transaction, TxnInput.COMMIT))
    assert isinstance(error, AbortableTransactionError)
    assert why in str(error)
    producer.call(producer.core.end_transaction, TxnInput.ABORT)
    assert state_of(producer) is TxnState.ABORTING


def test_a_commit_that_waits_for_offsets_fails_with_them() -> None:
    producer = begun(2, max_block_ms=1_000)
    offsets = {TopicPartition("in", 0): OffsetAndMetadata(7)}
    offering = producer.call(producer.core.send_offsets, offsets, ConsumerGroupMetadata("g"))
    committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
    producer.feed(producer.core.abandoned, offering)
    assert isinstance(producer.result(committing), AbortableTransactionError)
    assert not producer.waiting(ApiKey.END_TXN)


def test_offsets_that_are_in_the_transaction_are_in_no_doubt() -> None:
    producer = begun(2)
    offsets = {TopicPartition("in", 0): OffsetAndMetadata(7)}
    offering = producer.call(producer.core.send_offsets, offsets, ConsumerGroupMetadata("g"))
    producer.answer(ApiKey.TXN_OFFSET_COMMIT, offsets_committed(ErrorCode.NONE))
    assert producer.result(offering) is None
    producer.feed(producer.core.abandoned, offering)  # its caller was cancelled just then
    assert state_of(producer) is TxnState.IN_TRANSACTION


def test_a_partition_that_may_not_be_added_is_asked_for_once_and_the_abort_comes_to_its_end() -> None:
    producer = begun(1)
    producer.send("a")
    producer.answer(ApiKey.ADD_PARTITIONS_TO_TXN, added(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert state_of(producer) is TxnState.ABORTABLE_ERROR
    assert not producer.waiting(ApiKey.ADD_PARTITIONS_TO_TXN)
    aborting = producer.call(producer.core.end_transaction, TxnInput.ABORT)
    assert producer.result(aborting) is None


def test_an_abort_that_learns_that_the_producer_was_fenced_says_so() -> None:
    producer = begun(1)
    producer.send("a")
    aborting = producer.call(producer.core.end_transaction, TxnInput.ABORT)
    producer.answer(ApiKey.ADD_PARTITIONS_TO_TXN, added(ErrorCode.PRODUCER_FENCED))
    assert isinstance(producer.result(aborting), FatalProducerError | ProducerFencedError)
    assert state_of(producer) is TxnState.FATAL_ERROR
    assert not producer.waiting(ApiKey.END_TXN)


@pytest.mark.parametrize("while_committing", [False, True])
def test_the_late_loss_of_a_batch_that_expired_harms_no_later_transaction(*, while_committing: bool) -> None:
    producer = begun(2, delivery_timeout_ms=2_000, request_timeout_ms=1_500, max_block_ms=60_000)
    expired = producer.send("a")
    producer.connect()
    producer.pass_time(2.0)
    assert isinstance(expired.exception(), RequestTimeoutError)
    aborting = producer.call(producer.core.end_transaction, TxnInput.ABORT)
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, 0, 7, 1))
    assert producer.result(aborting) is None
    late = producer.asked(ApiKey.PRODUCE)
    begin(producer)
    producer.send("a")
    if while_committing:
        committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
        producer.acknowledge()
        producer.feed(producer.core.failed, late.ticket, DisconnectedError("lost"))
    else:
        producer.feed(producer.core.failed, late.ticket, DisconnectedError("lost"))
        committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
        producer.acknowledge()
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, 0, 7, 2))
    assert producer.result(committing) is None


def test_an_abort_that_waits_behind_a_commit_is_made_when_that_fails() -> None:
    producer = begun(2)
    producer.send("a")
    producer.connect()
    committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
    aborting = producer.call(producer.core.end_transaction, TxnInput.ABORT)
    producer.acknowledge(ErrorCode.INVALID_RECORD)
    assert isinstance(producer.result(committing), AbortableTransactionError)
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, 0, 7, 1))
    assert producer.result(aborting) is None


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_an_end_that_the_coordinator_knows_nothing_of_is_fatal_and_says_why(code: ErrorCode, *, commit: bool) -> None:
    """Its time was over, or the coordinator that answers is an old one (simulator, transactions 39)."""
    producer = begun(2)
    producer.send("a")
    producer.connect()
    producer.acknowledge()
    ending = producer.call(producer.core.end_transaction, TxnInput.COMMIT if commit else TxnInput.ABORT)
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, code))
    error = producer.result(ending)
    assert isinstance(error, FatalProducerError)
    assert isinstance(error.__cause__, KafkaError)
    assert error.__cause__.code is code
    assert state_of(producer) is TxnState.FATAL_ERROR


@pytest.mark.parametrize("transaction_version", [1, 2])
@pytest.mark.parametrize("begins_with", ["offsets", "records"])
def test_a_producer_whose_id_has_expired_aborts_and_goes_on_with_another_identity(
    transaction_version: int, begins_with: str
) -> None:
    """It was idle for longer than transactional.id.expiration.ms (KIP-360). Only where its group fences it."""
    producer = begun(transaction_version)
    outlive_its_id(producer)
    code, first_protocol = ErrorCode.INVALID_PRODUCER_ID_MAPPING, transaction_version == 1
    if begins_with == "offsets":
        offsets = {TopicPartition("in", 0): OffsetAndMetadata(7)}
        offering = producer.call(producer.core.send_offsets, offsets, ConsumerGroupMetadata("g"))
        if first_protocol:
            producer.answer(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnResponse(0, code))
        else:
            producer.answer(ApiKey.TXN_OFFSET_COMMIT, offsets_committed(code))
        error = producer.result(offering)
        assert isinstance(error, KafkaError)
        assert error.code is code
    else:
        producer.send("a")
        if first_protocol:
            producer.answer(ApiKey.ADD_PARTITIONS_TO_TXN, added(code))
        else:
            producer.connect()
            producer.acknowledge(code)
    committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
    assert isinstance(producer.result(committing), AbortableTransactionError)
    aborting = producer.call(producer.core.end_transaction, TxnInput.ABORT)
    if not first_protocol:
        producer.answer(ApiKey.END_TXN, EndTxnResponse(0, code))
    ask = producer.asked(ApiKey.INIT_PRODUCER_ID)
    assert isinstance(ask.message, InitProducerIdRequest)
    assert ask.message[2:4] == (7, 0), "whoever has taken over the id meanwhile is not fenced"
    producer.feed(producer.core.answered, ask.ticket, InitProducerIdResponse(0, 0, 9, 0))
    assert producer.result(aborting) is None
    begin(producer)
    producer.send("a")
    if first_protocol:
        producer.answer(ApiKey.ADD_PARTITIONS_TO_TXN, added(ErrorCode.NONE))
    if begins_with == "offsets" or first_protocol:
        producer.connect()
    sent = producer.acknowledge().message
    assert isinstance(sent, ProduceRequest)
    header = parse_header(sent.topic_data[0].partition_data[0].records or b"")
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 0, 0)
    committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, 0) if first_protocol else EndTxnResponse(0, 0, 9, 1))
    assert producer.result(committing) is None


def test_an_abort_of_a_prepared_transaction_that_nobody_knows_any_more_says_that_its_outcome_is_unknown() -> None:
    """Somebody else had its handle and may have committed it, a week ago."""
    producer = begun(2, transaction_two_phase_commit_enable=True)
    outlive_its_id(producer)
    producer.send("a")
    producer.connect()
    producer.acknowledge()
    assert producer.result(producer.call(producer.core.end_transaction, TxnInput.PREPARE)) is None
    aborting = producer.call(producer.core.end_transaction, TxnInput.ABORT)
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    error = producer.result(aborting)
    assert isinstance(error, FatalProducerError)
    assert "its outcome is unknown" in str(error)


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_a_producer_that_nothing_else_fences_is_at_its_end_when_its_id_has_expired(transaction_version: int) -> None:
    """Its successor may have done the same work, and have been idle for as long (KAFKA-18019)."""
    producer = begun(transaction_version)
    producer.send("a")
    if transaction_version == 1:
        producer.answer(ApiKey.ADD_PARTITIONS_TO_TXN, added(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    else:
        producer.connect()
        producer.acknowledge(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert state_of(producer) is TxnState.FATAL_ERROR
    error = producer.result(producer.call(producer.core.end_transaction, TxnInput.ABORT))
    assert isinstance(error, FatalProducerError)
    assert "nothing of this transaction is committed" in str(error)
    assert not producer.waiting(ApiKey.INIT_PRODUCER_ID)


def test_a_producer_whose_id_has_expired_and_was_taken_over_is_fenced() -> None:
    producer = begun(2)
    outlive_its_id(producer)
    producer.send("a")
    producer.connect()
    producer.acknowledge(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    aborting = producer.call(producer.core.end_transaction, TxnInput.ABORT)
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    producer.answer(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(0, ErrorCode.PRODUCER_FENCED))
    assert isinstance(producer.result(aborting), ProducerFencedError)
    assert state_of(producer) is TxnState.FATAL_ERROR


def test_a_commit_that_waits_behind_one_that_is_abandoned_is_made() -> None:
    producer = begun(2)
    producer.send("a")
    producer.connect()
    first, second = (producer.call(producer.core.end_transaction, TxnInput.COMMIT) for _ in range(2))
    producer.feed(producer.core.abandoned, first)
    producer.acknowledge()
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, 0, 7, 1))
    assert producer.result(second) is None


def test_an_end_is_not_asked_for_twice_when_only_the_new_epoch_is_missing() -> None:
    producer = begun(1, max_block_ms=1_000)
    producer.send("a")
    producer.answer(ApiKey.ADD_PARTITIONS_TO_TXN, added(ErrorCode.NONE))
    producer.connect()
    producer.acknowledge(ErrorCode.INVALID_RECORD)
    aborting = producer.call(producer.core.end_transaction, TxnInput.ABORT)
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, 0))
    lost = producer.asked(ApiKey.INIT_PRODUCER_ID)  # the coordinator has it: the old epoch is fenced from now on
    producer.pass_time(1.0)
    assert isinstance(producer.result(aborting), RequestTimeoutError)
    again = producer.call(producer.core.end_transaction, TxnInput.ABORT)
    assert not producer.waiting(ApiKey.END_TXN), "it would be refused: PRODUCER_FENCED"
    assert producer.asked(ApiKey.INIT_PRODUCER_ID).message == lost.message
    producer.feed(producer.core.abandoned, again)


@pytest.mark.parametrize("transaction_version", [1, 2])
@pytest.mark.parametrize("answered", [True, False])
def test_an_end_that_may_come_late_cannot_end_the_next_transaction(transaction_version: int, *, answered: bool) -> None:
    """In the first protocol the epoch stays, so the copy of an EndTxn that got no answer would commit what came next
    (simulator, exactly-once 330011270)."""
    producer = begun(transaction_version)
    producer.send("a")
    if transaction_version == 1:
        producer.answer(ApiKey.ADD_PARTITIONS_TO_TXN, added(ErrorCode.NONE))
    producer.connect()
    producer.acknowledge()
    committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
    if not answered:
        producer.feed(producer.core.failed, producer.asked(ApiKey.END_TXN).ticket, DisconnectedError("lost"))
        producer.pass_time(1.0)
    bumped = transaction_version == 2
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, 0, 7, 1) if bumped else EndTxnResponse(0, 0))
    if not bumped and not answered:
        ask = producer.asked(ApiKey.INIT_PRODUCER_ID)
        assert isinstance(ask.message, InitProducerIdRequest)
        assert ask.message[2:4] == (7, 0), "the next epoch, for this producer"
        producer.feed(producer.core.answered, ask.ticket, InitProducerIdResponse(0, 0, 7, 1))
    assert producer.result(committing) is None
    assert not producer.waiting(ApiKey.INIT_PRODUCER_ID)
    begin(producer)
    committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
    assert producer.result(committing) is None
    assert not producer.waiting(ApiKey.INIT_PRODUCER_ID), "once is enough"


def test_a_record_is_refused_once_the_transaction_is_being_ended() -> None:
    producer = begun(2)
    producer.call(producer.core.end_transaction, TxnInput.COMMIT)
    with pytest.raises(IllegalStateError):
        producer.append("a")


@pytest.mark.parametrize("text", ["", "7", "7:0", "7:0:", "-7:0:x", "7:32768:x", f"{2**63}:0:x", "7:x:0"])
def test_t15_what_is_no_handle_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is no transaction: expected producerId:epoch:transactionalId"):
        TransactionHandle.parse(text)


@pytest.mark.parametrize("wrong", [None, 7, b"7:0:x"])
def test_t15_a_handle_is_read_from_a_text(wrong: object) -> None:
    with pytest.raises(TypeError, match="a handle is read from the str that str"):
        TransactionHandle.parse(wrong)  # type: ignore[arg-type]


def test_t15_a_handle_may_be_as_large_as_kafka_allows_and_its_id_may_have_colons() -> None:
    handle = TransactionHandle("a:b", 2**63 - 1, 32_767)
    assert TransactionHandle.parse(str(handle)) == handle


@pytest.mark.parametrize("cause", ["refused", "too slow"])
def test_a_transaction_of_which_the_coordinator_does_not_know_is_aborted_without_it(cause: str) -> None:
    """First protocol: EndTxn would be answered INVALID_TXN_STATE, and that would be the producer's end."""
    producer = begun(1, max_block_ms=1_000)
    offsets = {TopicPartition("in", 0): OffsetAndMetadata(7)}
    sending = producer.call(producer.core.send_offsets, offsets, ConsumerGroupMetadata("g", 1, "m"))
    if cause == "refused":
        answer = AddOffsetsToTxnResponse(0, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        producer.answer(ApiKey.ADD_OFFSETS_TO_TXN, answer)
    else:
        assert producer.waiting(ApiKey.ADD_OFFSETS_TO_TXN)
        producer.pass_time(1.0)
    assert producer.result(sending) is not None
    aborting = producer.call(producer.core.end_transaction, TxnInput.ABORT)
    if cause == "too slow":  # it may have it all the same, and then the next epoch must not be asked for yet
        producer.answer(ApiKey.END_TXN, EndTxnResponse(0, ErrorCode.INVALID_TXN_STATE))
        producer.identify(7, 1)  # it may come late: in the next epoch it is refused
    assert not producer.waiting(ApiKey.END_TXN)
    assert producer.result(aborting) is None
    begin(producer)


@pytest.mark.parametrize("begins_with", ["offsets that are abandoned", "offsets", "records"])
def test_a_transaction_that_may_have_begun_is_aborted_before_the_next_epoch_is_asked_for(begins_with: str) -> None:
    """First protocol: InitProducerId with the epoch of an open transaction fences who asks."""
    producer = begun(1, max_block_ms=1_000)
    if begins_with == "records":
        producer.send("a")
    else:
        offsets = {TopicPartition("in", 0): OffsetAndMetadata(7)}
        call = producer.call(producer.core.send_offsets, offsets, ConsumerGroupMetadata("g"))
        if begins_with == "offsets that are abandoned":
            producer.feed(producer.core.abandoned, call)
    producer.pass_time(1.0)
    aborting = producer.call(producer.core.end_transaction, TxnInput.ABORT)
    lost = producer.asked(ApiKey.END_TXN)
    producer.pass_time(1.0)
    assert isinstance(producer.result(aborting), RequestTimeoutError)
    aborting = producer.call(producer.core.end_transaction, TxnInput.ABORT)
    ask = producer.asked(ApiKey.END_TXN)
    assert ask.message == lost.message
    assert not producer.waiting(ApiKey.INIT_PRODUCER_ID)
    producer.feed(producer.core.answered, ask.ticket, EndTxnResponse(0, 0))
    lost = producer.asked(ApiKey.INIT_PRODUCER_ID)
    assert isinstance(lost.message, InitProducerIdRequest)
    assert lost.message[2:4] == (7, 0), "the next epoch, for this producer"
    producer.pass_time(1.0)
    assert isinstance(producer.result(aborting), RequestTimeoutError)
    aborting = producer.call(producer.core.end_transaction, TxnInput.ABORT)
    assert not producer.waiting(ApiKey.END_TXN), "it has succeeded"
    producer.identify(7, 1)
    assert producer.result(aborting) is None
    begin(producer)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.PRODUCER_FENCED])
def test_a_commit_that_has_succeeded_does_not_fail_because_the_next_epoch_is_refused(code: ErrorCode) -> None:
    producer = begun(1)
    producer.send("a")
    producer.answer(ApiKey.ADD_PARTITIONS_TO_TXN, added(ErrorCode.NONE))
    producer.connect()
    producer.acknowledge()
    committing = producer.call(producer.core.end_transaction, TxnInput.COMMIT)
    producer.lose(ApiKey.END_TXN, DisconnectedError("gone"))
    producer.pass_time(1.0)
    producer.answer(ApiKey.END_TXN, EndTxnResponse(0, ErrorCode.NONE))
    producer.answer(ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(0, code))
    assert producer.result(committing) is None
    assert state_of(producer) is TxnState.FATAL_ERROR
    error = producer.result(producer.call(producer.core.begin_transaction))
    assert isinstance(error, FatalProducerError | ProducerFencedError)
