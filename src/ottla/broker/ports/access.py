"""May who asks do this? Handlers ask before they do it. Without an authorizer everybody may do everything."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from ottla.broker.access.audit import Audit
from ottla.broker.access.authorizer import Authorizer, Verdict, java_host
from ottla.broker.ports.quotas import Charged, counted
from ottla.broker.runtime.slices import Slices
from ottla.broker.session import Session
from ottla.coordinator.group.context import sees_all
from ottla.wire.acls import CLUSTER_NAME, OPERATIONS_ON, AclOperation, ResourceType


class Asking(Charged, Protocol):
    """A request: who asks, and by which API."""

    @property
    def session(self) -> Session: ...

    @property
    def client_id(self) -> str: ...

    @property
    def api_key(self) -> int: ...


class Access:
    """Answers by the authorizer, and tells the audit log. `is_on` says whether there is one at all."""

    def __init__(self, authorizer: Authorizer | None, audit: Audit, *, tells_logins: bool) -> None:
        """`tells_logins`: the audit log has those who could not authenticate, too."""
        self._tells_logins = tells_logins
        self.is_on: Final = authorizer is not None
        self._authorizer = authorizer
        self._audit = audit

    def unauthenticated(self, session: Session, mechanism: str, why: str) -> None:
        """Tell the audit log of somebody who could not say who he is, if there is one."""
        if self._tells_logins:
            self._audit.unauthenticated(session, mechanism, why)

    def allows(
        self, asking: Asking, operation: AclOperation, kind: ResourceType, name: str, *, told: bool = True
    ) -> bool:
        """Whether who asks may do this with this resource.

        Without `told` a refusal is not written to the audit log: something else may still allow it, or it only
        decides what is shown.
        """
        if self._authorizer is None:
            return True
        verdict = self._authorizer.decide(*_who(asking), operation, kind, name)
        return self._told(asking, operation, kind, name, verdict, told=told)

    def allows_cluster(self, asking: Asking, operation: AclOperation, *, told: bool = True) -> bool:
        """Whether who asks may do this with the cluster."""
        return self._authorizer is None or self.allows(asking, operation, ResourceType.CLUSTER, CLUSTER_NAME, told=told)

    def covers(
        self,
        asking: Asking,
        operation: AclOperation,
        kind: ResourceType = ResourceType.CLUSTER,
        names: Iterable[str] = (CLUSTER_NAME,),
    ) -> bool:
        """Whether who asks may do this with the whole cluster, and so with each of these resources.

        If not, another right may do, and no refusal is written to the audit log. What is allowed is, with each name.
        """
        if self._authorizer is None:
            return True
        verdict = self._authorizer.decide(*_who(asking), operation, ResourceType.CLUSTER, CLUSTER_NAME)
        if verdict.is_allowed:
            for name in names:
                self._told(asking, operation, kind, name, verdict, told=True)
        return verdict.is_allowed

    async def covers_many(
        self, slices: Slices, asking: Asking, operation: AclOperation, kind: ResourceType, names: Iterable[str]
    ) -> bool:
        """The same for names that may be thousands: others are served meanwhile."""
        if self._authorizer is None:
            return True
        verdict = self._authorizer.decide(*_who(asking), operation, ResourceType.CLUSTER, CLUSTER_NAME)
        if verdict.is_allowed:
            told = (self._told(asking, operation, kind, name, verdict, told=True) for name in names)
            await slices.run(counted(asking, told))
        return verdict.is_allowed

    def allows_somewhere(self, asking: Asking, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether who asks may do this with any resource of this type (KIP-679)."""
        if self._authorizer is None:
            return True
        verdict = self._authorizer.decide_somewhere(*_who(asking), operation, kind)
        return self._told(asking, operation, kind, "*", verdict, told=True)

    def refused(
        self, asking: Asking, operation: AclOperation, kind: ResourceType, names: Iterable[str], *, told: bool = True
    ) -> frozenset[str]:
        """Those of the names that who asks may not do this with; each is asked for once."""
        if self._authorizer is None:
            return frozenset()
        return frozenset(
            name for name in dict.fromkeys(names) if not self.allows(asking, operation, kind, name, told=told)
        )

    async def refused_of_many(
        self,
        slices: Slices,
        asking: Asking,
        operation: AclOperation,
        kind: ResourceType,
        names: Iterable[str],
        *,
        told: bool = True,
    ) -> frozenset[str]:
        """The same for names that may be thousands: others are served meanwhile."""
        refused: set[str] = set()
        if self._authorizer is None:
            return frozenset()

        def steps() -> Iterator[None]:
            for name in dict.fromkeys(names):
                if not self.allows(asking, operation, kind, name, told=told):
                    refused.add(name)
                yield

        await slices.run(counted(asking, steps()))
        return frozenset(refused)

    def sees(self, asking: Asking) -> Callable[[str], bool]:
        """Whether who asks may describe a topic, to be called with names later."""
        if self._authorizer is None:
            return sees_all
        return lambda name: self.allows(asking, AclOperation.DESCRIBE, ResourceType.TOPIC, name, told=False)

    def operations(self, asking: Asking, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The authorized operations on a resource, as bits (KIP-430): a bit's number is the operation's."""
        return sum(1 << each for each in OPERATIONS_ON[kind] if self.allows(asking, each, kind, name, told=False))

    def _told(
        self, asking: Asking, operation: AclOperation, kind: ResourceType, name: str, verdict: Verdict, *, told: bool
    ) -> bool:
        if told:
            self._audit.tell(asking.session, asking.client_id, asking.api_key, operation, kind, name, verdict)
        return verdict.is_allowed


def _who(asking: Asking) -> tuple[str, str]:
    """Principal and host, as ACLs name them."""
    return asking.session.principal, java_host(asking.session.client_host.removeprefix("/"))


class HasAccess(Protocol):
    """Needs to know who may do what."""

    @property
    def access(self) -> Access: ...
