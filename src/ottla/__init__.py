"""Ottla: Kafka's group coordination and exactly-once machinery in Python.

The clients are at hand as `ottla.Producer`, `ottla.Consumer`, `ottla.Admin` and their asyncio twins. They are imported
when they are first used, so that `import ottla` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.base.types import TopicPartition
    from ottla.client.admin.admin import AsyncAdmin
    from ottla.client.admin.types import (
        AlterConfig,
        ConfigResource,
        NewTopic,
        OffsetSpec,
        ResourceType,
        TransactionOutcome,
    )
    from ottla.client.blocking.admin import Admin
    from ottla.client.blocking.consumer import Consumer
    from ottla.client.blocking.producer import Producer
    from ottla.client.consumer.consumer import AsyncConsumer
    from ottla.client.consumer.resets import OffsetReset
    from ottla.client.core.consumer_record import ConsumerRecord
    from ottla.client.core.delivery import Delivery, RecordMetadata
    from ottla.client.core.offsets import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
    from ottla.client.producer.producer import AsyncProducer
    from ottla.client.producer.transactions import TransactionHandle

__version__ = "0.1.0"

_EXPORTS = {
    "Admin": "client.blocking.admin",
    "AlterConfig": "client.admin.types",
    "AsyncAdmin": "client.admin.admin",
    "AsyncConsumer": "client.consumer.consumer",
    "AsyncProducer": "client.producer.producer",
    "ConfigResource": "client.admin.types",
    "Consumer": "client.blocking.consumer",
    "ConsumerGroupMetadata": "client.core.offsets",
    "ConsumerRecord": "client.core.consumer_record",
    "Delivery": "client.core.delivery",
    "NewTopic": "client.admin.types",
    "OffsetAndMetadata": "client.core.offsets",
    "OffsetAndTimestamp": "client.core.offsets",
    "OffsetReset": "client.consumer.resets",
    "OffsetSpec": "client.admin.types",
    "Producer": "client.blocking.producer",
    "RecordMetadata": "client.core.delivery",
    "ResourceType": "client.admin.types",
    "TopicPartition": "base.types",
    "TransactionHandle": "client.producer.transactions",
    "TransactionOutcome": "client.admin.types",
}

__all__ = [
    "Admin",
    "AlterConfig",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "ConfigResource",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "Delivery",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetReset",
    "OffsetSpec",
    "Producer",
    "RecordMetadata",
    "ResourceType",
    "TopicPartition",
    "TransactionHandle",
    "TransactionOutcome",
]


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    value = getattr(import_module(f"ottla.{module}"), name)
    globals()[name] = value
    return value
