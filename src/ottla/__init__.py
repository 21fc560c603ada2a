"""Ottla: Kafka's group coordination and exactly-once machinery in Python.

The clients are at hand as `ottla.Producer`, `ottla.Consumer`, `ottla.Admin` and their asyncio twins, with
the exceptions they raise (`ottla.client.errors` draws their tree). They are imported when they are first used, so that
`import ottla` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.base.version import VERSION

if TYPE_CHECKING:
    from ottla.base.errors import ConfigError, OttlaError
    from ottla.base.types import TopicPartition
    from ottla.client.admin.acls import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPatternType,
        AclPermissionType,
        AclResourceType,
    )
    from ottla.client.admin.admin import AsyncAdmin
    from ottla.client.admin.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter
    from ottla.client.admin.types import (
        AlterConfig,
        ConfigResource,
        NewTopic,
        OffsetSpec,
        ResourceType,
        TransactionOutcome,
    )
    from ottla.client.admin.users import DeleteScramCredential, ScramMechanism, SetScramCredential
    from ottla.client.blocking.admin import Admin
    from ottla.client.blocking.consumer import Consumer
    from ottla.client.blocking.exactly_once import Batch, ExactlyOnce, exactly_once
    from ottla.client.blocking.producer import Producer
    from ottla.client.consumer.consumer import AsyncConsumer
    from ottla.client.core.consumer.consumer_record import ConsumerRecord
    from ottla.client.core.consumer.events import (
        EventsDropped,
        Expelled,
        GenerationJoined,
        PartitionsAssigned,
        PartitionsLost,
        PartitionsRevoked,
        Rebalanced,
    )
    from ottla.client.core.consumer.offset_reset import OffsetReset
    from ottla.client.core.consumer.subscription import SubscriptionPattern
    from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
    from ottla.client.core.producer.handle import TransactionHandle
    from ottla.client.errors import (
        AbortableTransactionError,
        AssignorError,
        AuthenticationError,
        AuthorizationError,
        BufferExhaustedError,
        ClientError,
        CommitFailedError,
        CorruptRecordsError,
        DisconnectedError,
        FatalProducerError,
        FencedInstanceIdError,
        GroupMaxSizeReachedError,
        IllegalStateError,
        IncompleteAnswerError,
        InternalError,
        InvalidRegularExpressionError,
        InvalidTxnStateError,
        KafkaError,
        LogTruncatedError,
        MaxPollIntervalExceededError,
        NoOffsetForPartitionError,
        NotHangingError,
        OffsetOutOfRangeError,
        ProducerFencedError,
        RebalanceInProgressError,
        RecordTooLargeError,
        RequestTimeoutError,
        SaslAuthenticationError,
        SerializationError,
        SslAuthenticationError,
        TopicAlreadyExistsError,
        UnknownTopicOrPartitionError,
        UnreleasedInstanceIdError,
        UnsupportedAssignorError,
        UnsupportedVersionError,
    )
    from ottla.client.exactly_once.batch import AsyncBatch
    from ottla.client.exactly_once.work import AsyncExactlyOnce
    from ottla.client.producer.delivery import Delivery, RecordMetadata
    from ottla.client.producer.producer import AsyncProducer

__version__ = VERSION

_EXPORTS = {
    "AbortableTransactionError": "client.errors",
    "AclBinding": "client.admin.acls",
    "AclBindingFilter": "client.admin.acls",
    "AclOperation": "client.admin.acls",
    "AclPatternType": "client.admin.acls",
    "AclPermissionType": "client.admin.acls",
    "AclResourceType": "client.admin.acls",
    "Admin": "client.blocking.admin",
    "AlterConfig": "client.admin.types",
    "AssignorError": "client.errors",
    "AsyncAdmin": "client.admin.admin",
    "AsyncBatch": "client.exactly_once.batch",
    "AsyncConsumer": "client.consumer.consumer",
    "AsyncExactlyOnce": "client.exactly_once.work",
    "AsyncProducer": "client.producer.producer",
    "AuthenticationError": "client.errors",
    "AuthorizationError": "client.errors",
    "Batch": "client.blocking.exactly_once",
    "BufferExhaustedError": "client.errors",
    "ClientError": "client.errors",
    "ClientQuotaAlteration": "client.admin.quotas",
    "ClientQuotaEntity": "client.admin.quotas",
    "ClientQuotaFilter": "client.admin.quotas",
    "CommitFailedError": "client.errors",
    "ConfigError": "base.errors",
    "ConfigResource": "client.admin.types",
    "Consumer": "client.blocking.consumer",
    "ConsumerGroupMetadata": "client.core.offsets",
    "ConsumerRecord": "client.core.consumer.consumer_record",
    "CorruptRecordsError": "client.errors",
    "DeleteScramCredential": "client.admin.users",
    "Delivery": "client.producer.delivery",
    "DisconnectedError": "client.errors",
    "EventsDropped": "client.core.consumer.events",
    "ExactlyOnce": "client.blocking.exactly_once",
    "Expelled": "client.core.consumer.events",
    "FatalProducerError": "client.errors",
    "FencedInstanceIdError": "client.errors",
    "GenerationJoined": "client.core.consumer.events",
    "GroupMaxSizeReachedError": "client.errors",
    "IllegalStateError": "client.errors",
    "IncompleteAnswerError": "client.errors",
    "InternalError": "client.errors",
    "InvalidRegularExpressionError": "client.errors",
    "InvalidTxnStateError": "client.errors",
    "KafkaError": "client.errors",
    "LogTruncatedError": "client.errors",
    "MaxPollIntervalExceededError": "client.errors",
    "NewTopic": "client.admin.types",
    "NoOffsetForPartitionError": "client.errors",
    "NotHangingError": "client.errors",
    "OffsetAndMetadata": "client.core.offsets",
    "OffsetAndTimestamp": "client.core.offsets",
    "OffsetOutOfRangeError": "client.errors",
    "OffsetReset": "client.core.consumer.offset_reset",
    "OffsetSpec": "client.admin.types",
    "OttlaError": "base.errors",
    "PartitionsAssigned": "client.core.consumer.events",
    "PartitionsLost": "client.core.consumer.events",
    "PartitionsRevoked": "client.core.consumer.events",
    "Producer": "client.blocking.producer",
    "ProducerFencedError": "client.errors",
    "RebalanceInProgressError": "client.errors",
    "Rebalanced": "client.core.consumer.events",
    "RecordMetadata": "client.producer.delivery",
    "RecordTooLargeError": "client.errors",
    "RequestTimeoutError": "client.errors",
    "ResourceType": "client.admin.types",
    "SaslAuthenticationError": "client.errors",
    "ScramMechanism": "client.admin.users",
    "SerializationError": "client.errors",
    "SetScramCredential": "client.admin.users",
    "SslAuthenticationError": "client.errors",
    "SubscriptionPattern": "client.core.consumer.subscription",
    "TopicAlreadyExistsError": "client.errors",
    "TopicPartition": "base.types",
    "TransactionHandle": "client.core.producer.transactions",
    "TransactionOutcome": "client.admin.types",
    "UnknownTopicOrPartitionError": "client.errors",
    "UnreleasedInstanceIdError": "client.errors",
    "UnsupportedAssignorError": "client.errors",
    "UnsupportedVersionError": "client.errors",
    "exactly_once": "client.blocking.exactly_once",
}

__all__ = [
    "AbortableTransactionError",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPatternType",
    "AclPermissionType",
    "AclResourceType",
    "Admin",
    "AlterConfig",
    "AssignorError",
    "AsyncAdmin",
    "AsyncBatch",
    "AsyncConsumer",
    "AsyncExactlyOnce",
    "AsyncProducer",
    "AuthenticationError",
    "AuthorizationError",
    "Batch",
    "BufferExhaustedError",
    "ClientError",
    "ClientQuotaAlteration",
    "ClientQuotaEntity",
    "ClientQuotaFilter",
    "CommitFailedError",
    "ConfigError",
    "ConfigResource",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "CorruptRecordsError",
    "DeleteScramCredential",
    "Delivery",
    "DisconnectedError",
    "EventsDropped",
    "ExactlyOnce",
    "Expelled",
    "FatalProducerError",
    "FencedInstanceIdError",
    "GenerationJoined",
    "GroupMaxSizeReachedError",
    "IllegalStateError",
    "IncompleteAnswerError",
    "InternalError",
    "InvalidRegularExpressionError",
    "InvalidTxnStateError",
    "KafkaError",
    "LogTruncatedError",
    "MaxPollIntervalExceededError",
    "NewTopic",
    "NoOffsetForPartitionError",
    "NotHangingError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "OffsetReset",
    "OffsetSpec",
    "OttlaError",
    "PartitionsAssigned",
    "PartitionsLost",
    "PartitionsRevoked",
    "Producer",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "Rebalanced",
    "RecordMetadata",
    "RecordTooLargeError",
    "RequestTimeoutError",
    "ResourceType",
    "SaslAuthenticationError",
    "ScramMechanism",
    "SerializationError",
    "SetScramCredential",
    "SslAuthenticationError",
    "SubscriptionPattern",
    "TopicAlreadyExistsError",
    "TopicPartition",
    "TransactionHandle",
    "TransactionOutcome",
    "UnknownTopicOrPartitionError",
    "UnreleasedInstanceIdError",
    "UnsupportedAssignorError",
    "UnsupportedVersionError",
    "exactly_once",
]


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    value = getattr(import_module(f"ottla.{module}"), name)
    globals()[name] = value
    return value
