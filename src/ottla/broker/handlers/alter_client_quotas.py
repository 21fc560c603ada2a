"""AlterClientQuotas, versions 0–1 (KIP-546, KIP-612): set and remove quotas, as Kafka's ClientQuotaControlManager."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from ottla.base.errors import StorageError
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.quota_rules import Alteration, Change, decide
from ottla.broker.metadata.records import ClientQuotaRecord, MetadataRecord, QuotaEntityData
from ottla.broker.metadata.rules import RefusedError, check_changes
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.quotas import HasQuotas
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage
from ottla.broker.quotas.table import Entity
from ottla.broker.runtime.answers import then
from ottla.wire.acls import AclOperation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryResult,
)

_Problem = tuple[ErrorCode, str | None]
#: Entities of which it is told at once what became of them.
_AT_ONCE: Final = 100


class _Node(HasAccess, HasImage, HasQuotas, HasSlices, Protocol):
    """What this handler touches."""


def handle(
    node: _Node, request: AlterClientQuotasRequest, context: RequestContext
) -> "AlterClientQuotasResponse | asyncio.Future[AlterClientQuotasResponse]":
    """Each entity's quotas, or an error for the entity."""
    if not node.access.allows_cluster(context, AclOperation.ALTER_CONFIGS):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
        return AlterClientQuotasResponse(entries=tuple(EntryResult(*refused, each.entity) for each in request.entries))
    try:
        check_changes(sum(len(each.ops) for each in request.entries), "quotas")
    except RefusedError as refused:
        return AlterClientQuotasResponse(
            entries=tuple(EntryResult(refused.error, str(refused), each.entity) for each in request.entries)
        )
    alterations = map(_read, request.entries)
    results: dict[Entity, RefusedError | None] = {}

    def decided() -> Iterator[MetadataRecord | None]:
        for change in decide(node.image.quotas, alterations, results):
            yield None if change is None or request.validate_only else _record(change)

    if len(request.entries) > _AT_ONCE:
        return node.slices.start(_slowly(node, decided, results), "many quotas")

    def told(fault: StorageError | None) -> AlterClientQuotasResponse:
        return AlterClientQuotasResponse(entries=tuple(_told(results, fault)))

    answer: AlterClientQuotasResponse | asyncio.Future[AlterClientQuotasResponse]
    answer = then(node.quotas.change(decided), told)
    return answer


async def _slowly(
    node: _Node, decided: Callable[[], Iterator[MetadataRecord | None]], results: Mapping[Entity, RefusedError | None]
) -> AlterClientQuotasResponse:
    """What became of each is told while others are served, too."""
    fault = await node.quotas.change(decided)
    return AlterClientQuotasResponse(entries=tuple(await node.slices.collect(_told(results, fault))))


def _read(entry: EntryData) -> Alteration:
    return Alteration(
        tuple((part.entity_type, part.entity_name) for part in entry.entity),
        tuple((op.key, None if op.remove else op.value) for op in entry.ops),
    )


def _record(change: Change) -> ClientQuotaRecord:
    parts = tuple(QuotaEntityData(*part) for part in change.entity)
    return ClientQuotaRecord(parts, change.key, change.value or 0.0, change.value is None)


def _told(results: Mapping[Entity, RefusedError | None], fault: StorageError | None) -> Iterator[EntryResult]:
    """What became of each entity. With a fault of the disk nothing has changed."""
    good: _Problem = (ErrorCode.NONE, None) if fault is None else (ErrorCode.KAFKA_STORAGE_ERROR, str(fault))
    for of, refused in results.items():
        said: _Problem = good if refused is None else (refused.error, str(refused))
        yield EntryResult(*said, tuple(EntityData(*part) for part in of))
