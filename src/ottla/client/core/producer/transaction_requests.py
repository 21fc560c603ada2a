"""How the producer fills the requests of transactions, and what it reads from their answers and errors."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ottla.base.types import TopicPartition
from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.client.core.producer.identity import ProducerIdentity
from ottla.client.errors import code_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

#: Another producer uses this transactional id now.
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
#: The producer cannot go on after these.
FATAL: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
#: Coordinator or leader do not know this producer any more: it was idle for longer than they keep it.
FORGOTTEN: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID})
#: As the answer to a commit these say neither yes nor no: an earlier attempt, whose answer was lost, may have done it.
#: So may whoever has the handle of a prepared transaction.
UNKNOWN_OUTCOME: Final = FATAL | {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
#: The group does not know the member that read these offsets, or not in this generation.
GROUP_MOVED_ON: Final = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
)

NOT_TWO_PHASE: Final = (
    "prepare_transaction() needs transaction.two.phase.commit.enable=true in the configuration of the producer: "
    "otherwise the transaction could time out before it is decided"
)
NO_TWO_PHASE: Final = (
    "the brokers have no two-phase commit (KIP-939): set unstable.api.versions.enable=true and "
    "transaction.two.phase.commit.enable=true on them, with transaction.version 2, or turn "
    "transaction.two.phase.commit.enable off in the producer"
)
_FORBIDDEN_TWO_PHASE = (
    "the broker does not allow two-phase commit (see its setting transaction.two.phase.commit.enable), "
    "or not to this client"
)
EXPIRED: Final = (
    "the coordinator does not know this producer any more: it was idle for longer than the brokers' "
    "transactional.id.expiration.ms, or another one has taken over since; nothing of this transaction is committed. "
    "Make a new producer, and go on from what is committed"
)
OFFSETS_IN_DOUBT: Final = (
    "send_offsets_to_transaction() was cancelled, so nobody knows whether its offsets are in the transaction"
)


def init_producer_id(
    transactional_id: str | None, timeout_ms: int, current: ProducerIdentity, *, two_phase: bool = False
) -> InitProducerIdRequest:
    """Ask for an identity; with a valid `current`, for the epoch after it (KIP-360).

    `two_phase` (KIP-939) needs version `negotiation.TWO_PHASE_VERSION`: no transaction of this producer times out then.
    """
    return InitProducerIdRequest(transactional_id, timeout_ms, current.producer_id, current.epoch, two_phase)


def identity_error(answer: InitProducerIdResponse) -> tuple[int, str]:
    """The error in an answer to InitProducerId. An answer without a producer id is an error, too."""
    if answer.error_code == ErrorCode.NONE and answer.producer_id < 0:
        return ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer has neither a producer id nor an error"
    return answer.error_code, ""


def end_transaction(transactional_id: str, identity: ProducerIdentity, *, commit: bool) -> EndTxnRequest:
    """Commit or abort."""
    return EndTxnRequest(transactional_id, identity.producer_id, identity.epoch, commit)


def end_error(answer: EndTxnResponse, *, nothing_there: Collection[int]) -> tuple[int, str]:
    """The error in an answer to EndTxn. The codes `nothing_there` are none: they say that nothing is left to abort."""
    return ErrorCode.NONE if answer.error_code in nothing_there else answer.error_code, ""


def why_not(code: int, timeout_ms: int, *, two_phase: bool) -> str | None:
    """What is wrong with the producer's settings, if it is that."""
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED and two_phase:
        return _FORBIDDEN_TWO_PHASE
    if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return (
            f"the broker does not allow transaction.timeout.ms={timeout_ms}: set one above 0, and not above the "
            "broker's transaction.max.timeout.ms"
        )
    return None


def add_offsets(transactional_id: str, identity: ProducerIdentity, group_id: str) -> AddOffsetsToTxnRequest:
    """First protocol: the group's offsets partition joins the transaction."""
    return AddOffsetsToTxnRequest(transactional_id, identity.producer_id, identity.epoch, group_id)


def add_partitions(
    transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """First protocol: partitions join the transaction before they are produced to."""
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=tuple(AddPartitionsToTxnTopic(name, tuple(ps)) for name, ps in by_topic.items()),
    )


def worst_partition_error(answer: AddPartitionsToTxnResponse) -> tuple[int, str]:
    """The error that counts: one that is not retriable, if there is one. OPERATION_NOT_ATTEMPTED says nothing: another
    partition of the same answer has the reason."""
    codes = {
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    } - {ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED}
    return min(sorted(codes), key=lambda code: code_of(code).retriable, default=ErrorCode.NONE), ""


def first_offset_error(answer: TxnOffsetCommitResponse) -> tuple[int, str]:
    """The error of the first partition that has one, and the partition's name."""
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code != ErrorCode.NONE:
                return partition.error_code, f"{topic.name}-{partition.partition_index}"
    return ErrorCode.NONE, ""


def commit_offsets(
    transactional_id: str,
    identity: ProducerIdentity,
    group: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    """The group's positions, to be committed with the transaction."""
    by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for tp, offset in sorted(offsets.items()):
        by_topic.setdefault(tp.topic, []).append(
            TxnOffsetCommitRequestPartition(tp.partition, offset.offset, offset.leader_epoch, offset.metadata)
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=tuple(TxnOffsetCommitRequestTopic(name, tuple(ps)) for name, ps in by_topic.items()),
    )
