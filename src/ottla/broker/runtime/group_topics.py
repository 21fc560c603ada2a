"""The metadata as the group coordinator sees them (the port `Topics` of `coordinator.group.consumer.topics`)."""

from collections.abc import Iterator

from ottla.broker.metadata.image import MetadataImage, TopicImage
from ottla.broker.metadata.names import GROUP_EVENTS_TOPIC
from ottla.coordinator.group.consumer.topics import Topic


class GroupTopics:
    """See the module. Every partition is on this one node, so all have its rack."""

    def __init__(self, image: MetadataImage, rack: str | None) -> None:
        self._image = image
        self._rack = rack

    @property
    def version(self) -> int:
        """Rises with every change of the metadata."""
        return self._image.version

    @property
    def created_version(self) -> int:
        """The version in which a topic was last made."""
        return self._image.created_version

    def find(self, name: str) -> Topic | None:
        """The topic that has this name now."""
        return self._topic(self._image.topics.get(name))

    def find_id(self, topic_id: bytes) -> Topic | None:
        """The topic with this id."""
        return self._topic(self._image.topics_by_id.get(topic_id))

    def names(self) -> Iterator[str]:
        """All names. The history of groups is not among them: no pattern of a client means it."""
        return (name for name in self._image.topics if name != GROUP_EVENTS_TOPIC)

    def _topic(self, image: TopicImage | None) -> Topic | None:
        if image is None:
            return None
        count = len(image.partitions)
        racks = ((self._rack,),) * count if self._rack else ()
        return Topic(image.name, image.topic_id, count, racks)
