"""Wait for the metadata of one topic."""

from functools import partial

from ottla.client.errors import KafkaError
from ottla.client.net.cluster import Cluster
from ottla.wire.errors import ErrorCode


async def wait_for_topic(cluster: Cluster, topic: str, timeout_ms: float, *, by: object = None) -> None:
    """Wait until the partitions of `topic` are known. From then on it is tracked for `by`.

    Raises the broker's error if it is not retriable, else RequestTimeoutError.
    """
    with cluster.tracking([topic]):
        if cluster.snapshot.partition_count(topic) == 0:
            await cluster.ensure_metadata(timeout_ms)
            attempt = partial(require_topic, cluster, topic)
            await cluster.retrying(attempt, what=f"metadata of topic {topic}", timeout_ms=timeout_ms)
        cluster.track([topic], by=by)


async def require_topic(cluster: Cluster, topic: str) -> None:
    """Ask for metadata if the partitions of a tracked topic are not known. Raises the broker's error if they are still
    not known after that."""
    if cluster.snapshot.partition_count(topic) == 0:
        await cluster.refreshed()
    if cluster.snapshot.partition_count(topic) == 0:
        code = cluster.snapshot.topic_errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError.of(code, f"topic {topic}")
