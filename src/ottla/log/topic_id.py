"""partition.metadata: the topic id that a partition's directory belongs to (KIP-516)."""

from ottla.base.errors import CorruptDataError, StorageError
from ottla.base.types import TopicPartition, topic_id_text
from ottla.log.checkpoint import decode_partition_metadata, encode_partition_metadata
from ottla.log.names import PARTITION_METADATA
from ottla.log.storage import Storage


def take_topic_id(
    tp: TopicPartition, storage: Storage, topic_id: bytes | None, *, is_known: bool
) -> tuple[bytes | None, tuple[str, ...]]:
    """The directory's topic id, which it is given if it has none; and a sentence if it should have had one.

    StorageError when it belongs to another topic. `is_known`: the partition was made before.
    """
    content = storage.read(PARTITION_METADATA)
    found = _topic_id_in(content)
    if found is not None and topic_id not in (None, found):
        theirs = topic_id_text(topic_id or b"")
        raise StorageError(
            f"{tp}: the directory belongs to topic id {topic_id_text(found)}, not {theirs} ({PARTITION_METADATA}): "
            "put this topic's directory back, or this file"
        )
    if found is not None or topic_id is None:
        return found, ()
    # No sync here: the broker's metadata has the id too, and a hundred partitions may be made at once.
    storage.write(PARTITION_METADATA, encode_partition_metadata(topic_id), sync=False)
    state = "was gone" if content is None else "was damaged"
    told = f"{PARTITION_METADATA} {state}, and is made again with the topic id that the metadata has"
    return topic_id, (told,) if is_known else ()


def _topic_id_in(content: bytes | None) -> bytes | None:
    try:
        return None if content is None else decode_partition_metadata(content)
    except CorruptDataError:
        return None  # cut short by a loss of power
