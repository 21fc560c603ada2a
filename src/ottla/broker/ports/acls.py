"""Changes of ACLs: one after the other, each as one batch of metadata.

Thousands of ACLs come into force in slices. Those that deny come first, and go last: in between nobody may do what he
may neither before nor after. (In Apache Kafka they come and go in the order of the request.)
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Protocol

from ottla.base.errors import StorageError
from ottla.broker.access.acls import Acl, AclFilter
from ottla.broker.metadata.cluster import ClusterMetadata
from ottla.broker.metadata.properties import new_uuid
from ottla.broker.metadata.records import MetadataRecord
from ottla.broker.metadata.rules import RefusedError, check_changes
from ottla.broker.runtime.changes import Changes
from ottla.broker.runtime.faults import DiskFaults
from ottla.broker.runtime.slices import Slices
from ottla.wire.acls import AclPermissionType


class AclChanges:
    """Adds and removes ACLs that were checked before. A change that has begun is carried out whole."""

    def __init__(
        self, metadata: ClusterMetadata, changes: Changes, slices: Slices, rng: random.Random, faults: DiskFaults
    ) -> None:
        self._metadata = metadata
        self._changes = changes
        self._slices = slices
        self._rng = rng
        self._faults = faults
        self._changing = asyncio.Lock()

    def create(self, acls: Sequence[Acl]) -> "asyncio.Future[StorageError | None]":
        """Have these ACLs; those that are there already stay. None of them is new if the disk refuses, and then why."""
        return self._slices.in_order(self._changing, partial(self._create, acls), "creating ACLs")

    def delete(self, filters: Sequence[AclFilter]) -> "asyncio.Future[list[list[Acl]] | StorageError | RefusedError]":
        """Have none of the ACLs that a filter means. The result is what each filter met; several may meet one ACL. Or
        why none of them is gone."""
        return self._slices.in_order(self._changing, partial(self._delete, filters), "deleting ACLs")

    async def _create(self, acls: Sequence[Acl]) -> StorageError | None:
        there = self._metadata.image.acls
        missing = (acl for acl in dict.fromkeys(sorted(acls, key=_denies_first)) if acl not in there)
        new = await self._slices.collect((new_uuid(self._rng), acl) for acl in missing)
        return await self._write(self._metadata.acl_records(dict(new), ()))

    async def _delete(self, filters: Sequence[AclFilter]) -> list[list[Acl]] | StorageError | RefusedError:
        met: list[dict[bytes, Acl]] = []
        try:
            await self._slices.run(self._meet(filters, met))
        except RefusedError as refused:
            return refused
        gone = {acl_id: acl for each in met for acl_id, acl in each.items()}
        allowing_first = sorted(gone, key=lambda acl_id: _denies_first(gone[acl_id]), reverse=True)
        fault = await self._write(self._metadata.acl_records({}, allowing_first))
        return fault or [sorted(each.values()) for each in met]

    def _meet(self, filters: Sequence[AclFilter], met: list[dict[bytes, Acl]]) -> Iterator[None]:
        """What the filters mean, an ACL in each step. RefusedError when all mean too many, one that several mean
        counted for each: the answer names it for each of them."""
        count = 0
        for each in filters:
            found: dict[bytes, Acl] = {}
            for meant in self._metadata.image.acls.meant(each):
                if meant is not None:
                    found[meant[0]] = meant[1]
                yield
            met.append(found)
            count += len(found)
            check_changes(count, "ACLs")

    async def _write(self, records: Iterator[MetadataRecord]) -> StorageError | None:
        try:
            change = self._changes.change(records)
            await self._changes.write(change, change.applying())
        except StorageError as fault:
            self._faults.report("ACLs cannot be changed", fault)
            return fault
        return None


def _denies_first(acl: Acl) -> bool:
    return acl.permission_type != AclPermissionType.DENY


class HasAcls(Protocol):
    """Needs to change ACLs."""

    @property
    def acls(self) -> AclChanges: ...
