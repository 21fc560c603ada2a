"""AlterClientQuotas, versions 0–1 (KIP-546, KIP-612): set and remove quotas, as Kafka's ClientQuotaControlManager."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.quota_rules import Alteration, Change, decide
from ottla.broker.metadata.records import ClientQuotaRecord, MetadataRecord, QuotaEntityData
from ottla.broker.metadata.rules import RefusedError, check_changes
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.quotas import HasQuotas
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

_Problem = tuple[ErrorCode, str]


class _Node(HasAccess, HasImage, HasQuotas, Protocol):
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

    def told(fault: StorageError | None) -> AlterClientQuotasResponse:
        return _answer(results, None if fault is None else (ErrorCode.KAFKA_STORAGE_ERROR, str(fault)))

    answer: AlterClientQuotasResponse | asyncio.Future[AlterClientQuotasResponse]
    answer = then(node.quotas.change(decided), told)
    return answer


def _read(entry: EntryData) -> Alteration:
    return Alteration(
        tuple((part.entity_type, part.entity_name) for part in entry.entity),
        tuple((op.key, None if op.remove else op.value) for op in entry.ops),
    )


def _record(change: Change) -> ClientQuotaRecord:
    parts = tuple(QuotaEntityData(*part) for part in change.entity)
    return ClientQuotaRecord(parts, change.key, change.value or 0.0, change.value is None)


def _answer(results: Mapping[Entity, RefusedError | None], fault: _Problem | None = None) -> AlterClientQuotasResponse:
    def told(refused: RefusedError | None) -> tuple[ErrorCode, str | None]:
        return fault or (ErrorCode.NONE, None) if refused is None else (refused.error, str(refused))

    return AlterClientQuotasResponse(
        entries=tuple(
            EntryResult(*told(refused), tuple(EntityData(*part) for part in of)) for of, refused in results.items()
        )
    )
