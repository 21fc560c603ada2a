"""A link to a cluster that forbids its clients some requests, as access control lists do."""

import random
from collections.abc import Mapping
from typing import Any

from ottla.client.config.admin import admin_config
from ottla.client.net.cluster import Cluster
from ottla.spark.link import KafkaLink
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult


class ForbiddingCluster(Cluster):
    """Answers CreateTopics and DescribeConfigs as Apache Kafka does to clients without the right, topic or no topic."""

    async def request(self, node_id: int, api: ApiKey, message: tuple[Any, ...], **how: Any) -> Any:
        """Everything but those two goes to the broker."""
        refused, why = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
        match api:
            case ApiKey.CREATE_TOPICS:
                named = message.topics  # type: ignore[attr-defined]
                return CreateTopicsResponse(
                    topics=tuple(CreatableTopicResult(t.name, error_code=refused, error_message=why) for t in named)
                )
            case ApiKey.DESCRIBE_CONFIGS:
                asked = message.resources  # type: ignore[attr-defined]
                return DescribeConfigsResponse(
                    results=tuple(DescribeConfigsResult(refused, why, r.resource_type, r.resource_name) for r in asked)
                )
        return await super().request(node_id, api, message, **how)


def forbidding_link(config: Mapping[str, object]) -> KafkaLink:
    """The link."""
    return KafkaLink(config, cluster=ForbiddingCluster(admin_config(config), random.Random()))
