"""A link to a broker whose quota for fetches is used up at first."""

import random
from collections.abc import Mapping
from typing import Any

from ottla.client.config.admin import admin_config
from ottla.client.net.cluster import Cluster
from ottla.spark.link import KafkaLink
from ottla.wire.apis import ApiKey
from ottla.wire.messages.fetch import FetchResponse


class ThrottledCluster(Cluster):
    """Answers fetches as Apache Kafka does over `consumer_byte_rate`: no topics, and a time for silence."""

    throttled = 8

    async def request(self, node_id: int, api: ApiKey, message: tuple[Any, ...], **how: Any) -> Any:
        """Everything but the first fetches goes to the broker."""
        if api is ApiKey.FETCH and self.throttled:
            self.throttled -= 1
            return FetchResponse(throttle_time_ms=700)
        return await super().request(node_id, api, message, **how)


def throttled_link(config: Mapping[str, object]) -> KafkaLink:
    """The link."""
    return KafkaLink(config, cluster=ThrottledCluster(admin_config(config), random.Random()))
