"""Answers that say no: for a request, the response that has an error wherever that response has one.

It is made up without the broker. Only a Metadata request for all topics is asked of it: nobody else knows which.
"""

from typing import Any, Final

from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.schema import schema

#: Which array of the request each array of the response answers item by item; `a|b`: that which is not empty.
_MIRRORS: Final[dict[ApiKey, dict[str, str]]] = {
    ApiKey.PRODUCE: {"responses": "topic_data", "partition_responses": "partition_data"},
    ApiKey.FETCH: {"responses": "topics", "partitions": "partitions"},
    ApiKey.LIST_OFFSETS: {"topics": "topics", "partitions": "partitions"},
    ApiKey.METADATA: {"topics": "topics"},
    ApiKey.OFFSET_COMMIT: {"topics": "topics", "partitions": "partitions"},
    ApiKey.OFFSET_FETCH: {"groups": "groups", "topics": "topics", "partitions": "partition_indexes"},
    ApiKey.FIND_COORDINATOR: {"coordinators": "coordinator_keys"},
    ApiKey.LEAVE_GROUP: {"members": "members"},
    ApiKey.CREATE_TOPICS: {"topics": "topics"},
    ApiKey.DELETE_TOPICS: {"responses": "topics|topic_names"},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": "topics", "partitions": "partitions"},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "results_by_transaction": "transactions",
        "topic_results": "topics",
        "results_by_partition": "partitions",
        "results_by_topic_v3_and_below": "v3_and_below_topics",
    },
    ApiKey.TXN_OFFSET_COMMIT: {"topics": "topics", "partitions": "partitions"},
}
#: APIs whose response has one error, for the whole request.
_ONE_ERROR: Final = frozenset(
    {
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.LIST_GROUPS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.LIST_TRANSACTIONS,
    }
)
_ERRORS: Final = frozenset({"error_code", "partition_error_code"})
#: Fields that say which part of the request is answered, and what the request calls them.
_IDENTITIES: Final = {
    "name": ("name",),
    "topic": ("topic",),
    "topic_id": ("topic_id",),
    "partition_index": ("partition_index", "index", "partition"),
    "partition": ("partition",),
    "index": ("index",),
    "group_id": ("group_id",),
    "member_id": ("member_id",),
    "group_instance_id": ("group_instance_id",),
    "transactional_id": ("transactional_id",),
}
#: What a response says where there is nothing to say.
_NOTHING: Final = dict.fromkeys(
    ("base_offset", "committed_offset", "high_watermark", "producer_id", "producer_epoch", "node_id"), -1
)


def can_be_refused(api: ApiKey) -> bool:
    """Whether `refusal` knows the API."""
    return api in _MIRRORS or api in _ONE_ERROR


def refusal(api: ApiKey, request: tuple[Any, ...], error: ErrorCode) -> tuple[Any, ...]:
    """The response to `request` that has `error` for the whole of it and for each of its parts."""
    response: tuple[Any, ...] = _mirror(API[api].response, request, error, _MIRRORS.get(api, {}))
    return response


def names_its_parts(api: ApiKey, version: int, request: tuple[Any, ...]) -> bool:
    """Whether the request says which parts its response has. A Metadata request for all topics does not."""
    if api is not ApiKey.METADATA:
        return True
    topics = MetadataRequest(*request).topics
    return topics is not None and (version > 0 or len(topics) > 0)


def spoiled(response: MetadataResponse, error: ErrorCode) -> MetadataResponse:
    """The broker's response with `error` in each of its topics, as for a request that has named them."""
    topics = tuple(each._replace(error_code=int(error), partitions=()) for each in response.topics)
    return response._replace(topics=topics, error_code=int(error))


def _mirror(kind: type[Any], asked: Any, error: ErrorCode, arrays: dict[str, str]) -> Any:
    said: dict[str, Any] = {}
    for name, type_, *_ in schema(kind).fields:
        if name in _ERRORS:
            said[name] = int(error)
        elif isinstance(type_, list) and not isinstance(type_[0], str):
            said[name] = tuple(_mirror(type_[0], each, error, arrays) for each in _array(asked, arrays.get(name, "")))
        elif name in _NOTHING:
            said[name] = _NOTHING[name]
        else:
            found = _named(name, asked)
            if found is not None:
                said[name] = found
    return kind(**said)


def _array(asked: Any, names: str) -> tuple[Any, ...]:
    return next((found for name in names.split("|") if (found := getattr(asked, name, None))), ())


def _named(name: str, asked: Any) -> Any:
    """What the request calls by this name. Where it has a bare number or text, that is it."""
    if isinstance(asked, int | str):
        return asked if name in (("key", "name") if isinstance(asked, str) else ("partition_index",)) else None
    return next((getattr(asked, each) for each in _IDENTITIES.get(name, ()) if each in asked._fields), None)
