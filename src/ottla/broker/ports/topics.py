"""Topics: what the metadata says of them, and making, changing and deleting them."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.broker.config import BrokerConfig
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicImage
from ottla.broker.metadata.names import GROUP_TOPIC, TRANSACTION_TOPIC
from ottla.broker.metadata.properties import new_uuid
from ottla.broker.metadata.rules import RefusedError, check_name
from ottla.broker.runtime.directories import remove_directories
from ottla.broker.runtime.partitions import Partitions
from ottla.wire.errors import ErrorCode

_log = logging.getLogger(__name__)

#: The topics that the broker makes for itself, and how their settings begin in its configuration.
_INTERNAL = {GROUP_TOPIC: "offsets.topic", TRANSACTION_TOPIC: "transaction.state.log"}


class Topics:
    """Changes topics: in the metadata and on the disk. `made` and `deleted` are told of each topic afterwards."""

    def __init__(
        self, config: BrokerConfig, metadata: ClusterMetadata, partitions: Partitions, directory_id: bytes
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._partitions = partitions
        self._directory_id = directory_id
        self._made: Callable[[TopicImage], None] = _nobody
        self._deleted: Callable[[TopicImage], None] = _nobody

    def tell(self, *, made: Callable[[TopicImage], None], deleted: Callable[[TopicImage], None]) -> None:
        """Call these from now on. The coordinators begin and end with their topics, and are made after this port."""
        self._made, self._deleted = made, deleted

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> TopicImage:
        """Make a topic; name and settings were checked. Directories come first: on a full disk no topic is made."""
        topic_id, numbers = new_uuid(), range(partitions)
        with self._telling(f"topic {name} cannot be made"):
            self._partitions.make(name, topic_id, numbers, configs)
            try:
                topic = self._metadata.create_topic(
                    name, topic_id, partitions, configs, directory_id=self._directory_id
                )
            except StorageError:
                self._partitions.unmake(name, numbers)
                raise
        self._made(topic)
        return topic

    def create_internal(self, name: str) -> TopicImage:
        """`__consumer_offsets` or `__transaction_state`, compacted as in Kafka."""
        prefix = _INTERNAL[name]
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer" if name == GROUP_TOPIC else "uncompressed",
            "segment.bytes": str(self._config.int(f"{prefix}.segment.bytes")),
        }
        return self.create(name, self._config.int(f"{prefix}.num.partitions"), configs)

    def auto_create(self, name: str) -> TopicImage | None:
        """Make the topic a client asks for, where `auto.create.topics.enable` allows it; None where it does not."""
        if name in _INTERNAL:
            return self.create_internal(name)
        if not self._config.flag("auto.create.topics.enable"):
            return None
        try:
            check_name(name, self._metadata.image)
            return self.create(name, self._config.int("num.partitions"), {})
        except RefusedError as fault:
            _log.warning("topic %s was not made: %s", name, fault)
        except StorageError:
            pass  # the fault was reported already
        return None

    def delete(self, topic: TopicImage) -> None:
        """Forget a topic, its records and the offsets committed for it. Another thread deletes the files."""
        with self._telling(f"topic {topic.name} cannot be deleted"):
            self._metadata.delete_topic(topic)
        doomed = self._partitions.delete_topic(topic)
        asyncio.get_running_loop().run_in_executor(None, remove_directories, doomed)
        self._deleted(topic)

    def add_partitions(self, topic: TopicImage, count: int) -> None:
        """Give a topic more partitions; `count` is the new total."""
        more = range(len(topic.partitions), count)
        with self._telling(f"topic {topic.name} cannot be given {count} partitions"):
            self._partitions.make(topic.name, topic.topic_id, more, self._metadata.image.topic_configs(topic.name))
            try:
                self._metadata.add_partitions(topic, count, directory_id=self._directory_id)
            except StorageError:
                self._partitions.unmake(topic.name, more)
                raise

    def check_alterable(self, resource_type: int, name: str) -> None:
        """RefusedError unless it is a topic that exists: a broker keeps the settings it was started with."""
        if resource_type != TOPIC_RESOURCE:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "Only the settings of topics can be changed while a broker runs."
            )
        if not name:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if name not in self._metadata.image.topics:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    def alter(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change a topic's settings. They were checked before."""
        with self._telling(f"the settings of topic {name} cannot be changed"):
            self._metadata.set_configs(TOPIC_RESOURCE, name, changes)
        image = self._metadata.image
        self._partitions.reconfigure(image.topics[name], image.topic_configs(name))

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Report a fault of the disk to the operator, and raise it for the request too."""
        try:
            yield
        except StorageError as fault:
            self._partitions.faults.report(what, fault)
            raise


def _nobody(topic: TopicImage) -> None:
    """Nobody listens yet."""


class HasTopics(Protocol):
    """Needs to change topics."""

    @property
    def topics(self) -> Topics: ...


class HasImage(Protocol):
    """Needs to read what the metadata says."""

    @property
    def image(self) -> MetadataImage: ...
