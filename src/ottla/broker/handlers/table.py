"""The one table of APIs: it drives dispatch, ApiVersions and `docs/apis.md`.

A handler module has one function `handle`. A plain one gets the decoded request and returns the response, or a future
of it. A raw one (`raw=True`) gets the frame itself and returns bytes. Produce and Fetch are raw to be fast, ApiVersions
because it answers an unknown version in another version (KIP-511). Modules are imported behind the start, or at
their first request, so that a broker starts fast.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

from ottla.base.limits import FEW_ELEMENTS, MAX_FIELD_BYTES, MAX_REQUEST_ELEMENTS
from ottla.base.words import shown
from ottla.broker.answers import Frame
from ottla.broker.handlers.parts import PART_DELETED_GROUPS, PART_OFFSET_GROUPS, Names
from ottla.broker.ports.quotas import Charge
from ottla.broker.session import Session
from ottla.wire.apis import API, ApiKey
from ottla.wire.codec_errors import TooManyElementsError, WireError
from ottla.wire.schema import decode

#: The setting with which versions are offered that Apache Kafka may still change.
UNSTABLE_VERSIONS: Final = "unstable.api.versions.enable"


class RequestContext(NamedTuple):
    """Who asks, in which version."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    session: Session
    #: What it uses of its client's quotas; None where there are none.
    charge: Charge | None = None


def decode_message(context: RequestContext, frame: Frame, offset: int) -> Any:
    """The request's body; WireError when it cannot be read or is too large to be answered. It names the client.

    Bytes after it are ignored, as in Kafka.

    That is needed: librdkafka asks for all topics with an array in an old form, which leaves three bytes too many.
    """
    try:
        return _decode(context, frame, offset, MAX_REQUEST_ELEMENTS)
    except WireError as fault:
        raise of_client(fault, context) from None


def decode_few(context: RequestContext, frame: Frame, offset: int) -> Any | None:
    """The same for a request whose bytes do not say how much it names; None if that is too much for one turn."""
    try:
        return _decode(context, frame, offset, FEW_ELEMENTS)
    except TooManyElementsError:
        return None
    except WireError as fault:
        raise of_client(fault, context) from None


def _decode(context: RequestContext, frame: Frame, offset: int, max_elements: int) -> Any:
    message, bounds = API[context.api_key].request, {"max_elements": max_elements, "max_field_bytes": MAX_FIELD_BYTES}
    return decode(message, context.api_version, frame, offset, exact=False, **bounds)


def of_client(fault: WireError, context: RequestContext) -> WireError:
    """The same error with the client's name."""
    advice = "; it should name less in a request" if isinstance(fault, TooManyElementsError) else ""
    return WireError(f"{fault}{advice} (client id {shown(context.client_id)})")


class Entry(NamedTuple):
    """One API as this broker offers it."""

    key: ApiKey
    max_version: int
    raw: bool
    summary: str
    #: Whether a request of very many partitions is carried out in parts (`handlers.parts`).
    in_parts: bool
    #: The same for one of very many names.
    names: Names | None = None
    #: Whether the version after `max_version` is there too, with `unstable.api.versions.enable`: Apache Kafka may still
    #: change it.
    has_unstable: bool = False
    #: Whether all members of a group send it at the same moment (`handlers.herd`).
    in_herds: bool = False

    @property
    def min_version(self) -> int:
        return API[self.key].min_version

    def newest(self, *, unstable: bool) -> int:
        """The highest version that is offered; `unstable` is the setting `unstable.api.versions.enable`."""
        return self.max_version + (1 if unstable and self.has_unstable else 0)

    def load(self) -> Callable[..., Any]:
        """The handler function."""
        handle: Callable[..., Any] = import_module(f"ottla.broker.handlers.{self.key.name.lower()}").handle
        return handle


def _api(
    key: ApiKey,
    summary: str,
    *,
    raw: bool = False,
    in_parts: bool = False,
    names: Names | None = None,
    has_unstable: bool = False,
    in_herds: bool = False,
) -> Entry:
    newest = API[key].max_version - (1 if has_unstable else 0)
    return Entry(key, newest, raw, summary, in_parts, names, has_unstable, in_herds)


_K = ApiKey

TABLE: Final[dict[int, Entry]] = {
    entry.key: entry
    for entry in (
        _api(_K.PRODUCE, "Append record batches; transactional ones are verified or added (KIP-890).", raw=True),
        _api(_K.FETCH, "Read file bytes; long polling, sessions (KIP-227), topic ids (KIP-516).", raw=True),
        _api(_K.LIST_OFFSETS, "Offsets by time: earliest, latest, max timestamp, isolation.", in_parts=True),
        _api(_K.METADATA, "Brokers, topics, partitions; creates a topic where that is enabled."),
        _api(_K.OFFSET_COMMIT, "Commit a group's offsets.", in_parts=True, in_herds=True),
        _api(
            _K.OFFSET_FETCH,
            "A group's offsets, or several groups'; stable ones on request (KIP-447).",
            names=Names("groups", "groups", at_once=PART_OFFSET_GROUPS, are_distinct_if_many=True),
            in_herds=True,
        ),
        _api(
            _K.FIND_COORDINATOR,
            "Which broker coordinates a group or a transactional id.",
            names=Names("coordinator_keys", "coordinators"),
            in_herds=True,
        ),
        _api(_K.JOIN_GROUP, "Join a classic group.", in_herds=True),
        _api(_K.HEARTBEAT, "A classic member lives.", in_herds=True),
        _api(_K.LEAVE_GROUP, "Members leave.", in_herds=True),
        _api(_K.SYNC_GROUP, "Hand out, or wait for, the assignment.", in_herds=True),
        _api(
            _K.DESCRIBE_GROUPS,
            "State and members of classic groups.",
            names=Names("groups", "groups", are_distinct_if_many=True),
        ),
        _api(_K.LIST_GROUPS, "All groups, by state and type."),
        _api(_K.SASL_HANDSHAKE, "Which mechanism a client uses; on listeners with SASL."),
        _api(_K.API_VERSIONS, "This table; UNSUPPORTED_VERSION in version 0 (KIP-511).", raw=True),
        _api(_K.CREATE_TOPICS, "Make topics."),
        _api(_K.DELETE_TOPICS, "Delete topics, by name or id."),
        _api(_K.DELETE_RECORDS, "Move the log start offset."),
        _api(
            _K.INIT_PRODUCER_ID,
            "A producer id and epoch; fences the id's earlier producer; two-phase commit from version 6 on (KIP-939).",
            has_unstable=True,
        ),
        _api(_K.OFFSET_FOR_LEADER_EPOCH, "Where a leader epoch ends (KIP-320).", in_parts=True),
        _api(_K.ADD_PARTITIONS_TO_TXN, "Add partitions to a transaction, or verify them."),
        _api(_K.ADD_OFFSETS_TO_TXN, "Add a group's offsets to a transaction."),
        _api(_K.END_TXN, "Commit or abort; raises the epoch from version 5 on (KIP-890)."),
        _api(_K.WRITE_TXN_MARKERS, "End a transaction in partitions, as a coordinator does (and repair tools)."),
        _api(_K.TXN_OFFSET_COMMIT, "Commit offsets inside a transaction.", in_parts=True),
        _api(_K.DESCRIBE_ACLS, "The ACLs that a filter means."),
        _api(_K.CREATE_ACLS, "Add ACLs."),
        _api(_K.DELETE_ACLS, "Delete the ACLs that filters mean."),
        _api(_K.DESCRIBE_CONFIGS, "Settings of topics, groups and brokers, with synonyms."),
        _api(_K.ALTER_CONFIGS, "Replace the settings of a topic or group (the older way)."),
        _api(_K.ALTER_REPLICA_LOG_DIRS, "Move replicas to another directory; there is one (KIP-113)."),
        _api(_K.DESCRIBE_LOG_DIRS, "Sizes of partitions on disk."),
        _api(_K.SASL_AUTHENTICATE, "What a mechanism says; the lifetime of the session (KIP-368)."),
        _api(_K.CREATE_PARTITIONS, "Give a topic more partitions."),
        _api(
            _K.DELETE_GROUPS,
            "Delete empty groups.",
            names=Names("groups_names", "results", are_distinct=True, at_once=PART_DELETED_GROUPS),
        ),
        _api(_K.ELECT_LEADERS, "Elect leaders; on one node each partition has the one that it can have (KIP-460)."),
        _api(_K.INCREMENTAL_ALTER_CONFIGS, "Change the settings of topics and groups (KIP-339)."),
        _api(_K.ALTER_PARTITION_REASSIGNMENTS, "Move partitions; on one node they stay where they are (KIP-455)."),
        _api(_K.LIST_PARTITION_REASSIGNMENTS, "Partitions that are being moved: none (KIP-455)."),
        _api(_K.OFFSET_DELETE, "Delete a group's offsets.", in_parts=True),
        _api(
            _K.CONSUMER_GROUP_HEARTBEAT,
            "A member of a consumer group joins, stays or leaves (KIP-848).",
            in_herds=True,
        ),
        _api(
            _K.CONSUMER_GROUP_DESCRIBE,
            "Consumer groups with epochs, members and assignments (KIP-848).",
            names=Names("group_ids", "groups", are_distinct_if_many=True),
        ),
        _api(_K.DESCRIBE_CLIENT_QUOTAS, "Quotas of users, client ids and addresses (KIP-546, KIP-612)."),
        _api(_K.ALTER_CLIENT_QUOTAS, "Set and remove such quotas."),
        _api(_K.DESCRIBE_USER_SCRAM_CREDENTIALS, "Users with SCRAM credentials (KIP-554)."),
        _api(_K.ALTER_USER_SCRAM_CREDENTIALS, "Set or delete the SCRAM credentials of users (KIP-554)."),
        _api(_K.DESCRIBE_QUORUM, "Who votes on the metadata log: this broker alone (KIP-595, KIP-853)."),
        _api(_K.UPDATE_FEATURES, "Raise `metadata.version`; other features stay as they are (KIP-584)."),
        _api(_K.DESCRIBE_CLUSTER, "Cluster id, controller, brokers."),
        _api(_K.DESCRIBE_PRODUCERS, "A partition's active producers (KIP-664)."),
        _api(
            _K.DESCRIBE_TRANSACTIONS,
            "State of transactional ids (KIP-664).",
            names=Names("transactional_ids", "transaction_states", are_distinct_if_many=True),
        ),
        _api(_K.LIST_TRANSACTIONS, "Transactional ids, by state, producer id, duration, pattern (KIP-664, KIP-1152)."),
        _api(_K.LIST_CONFIG_RESOURCES, "Topics, brokers and groups that have settings (KIP-1142)."),
        _api(_K.DESCRIBE_TOPIC_PARTITIONS, "Topics page by page (KIP-966)."),
    )
}


def document() -> str:
    """`docs/apis.md`, as text."""
    from ottla.broker.handlers.needs import NEEDS  # for the page and tests only

    lines = [
        "# APIs of the broker",
        "",
        "Written by `make docs` from `ottla.broker.handlers.table`; do not edit.",
        "An API or version that is not here gets its connection closed, as Kafka does;",
        "ApiVersions in an unknown version is answered with UNSUPPORTED_VERSION in version 0.",
        "",
        "A version in brackets is unstable in Apache Kafka 4.3: both brokers offer it only with",
        "`unstable.api.versions.enable=true`.",
        "",
        "| key | API | versions | what it does |",
        "|---:|---|---|---|",
    ]
    lines += [
        f"| {int(entry.key)} | {API[entry.key].name} | {entry.min_version}–{entry.max_version}"
        f"{f' ({entry.max_version + 1})' if entry.has_unstable else ''} | {entry.summary} |"
        for entry in TABLE.values()
    ]
    lines += [
        "",
        "## What each API needs",
        "With an authorizer each API asks for these operations, as in Apache Kafka 4.3",
        "([ACLs](security.md#what-may-you-do)). A resource on which one is missing gets TOPIC_, GROUP_, CLUSTER_ or",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED.",
        "",
        "| API | needs |",
        "|---|---|",
    ]
    lines += [
        f"| {API[entry.key].name} | {'; '.join(map(str, NEEDS[entry.key.name])) or '–'} |" for entry in TABLE.values()
    ]
    return "\n".join(lines) + "\n"
