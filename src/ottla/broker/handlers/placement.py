"""What the requests about leaders and replicas ask of the metadata."""

from ottla.broker.metadata.image import MetadataImage
from ottla.wire.errors import ErrorCode


def problem_of(image: MetadataImage, topic: str, number: int) -> tuple[ErrorCode, str] | None:
    """Error and message if there is no such partition; None if there is."""
    found = image.topics.get(topic)
    if found is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic"
    if not 0 <= number < len(found.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic has no partition {number}"
    return None
