"""The audit log: who did what to which resource, one JSON object a line, in the logger `ottla.audit`.

What is refused is written always, what is allowed only with `audit.log.allowed`. As in Kafka, a question that only
decides what is shown (a list of topics, authorized operations) is no access to a resource, and not written. Who fails
to say who he is by SASL is written, too.
"""

import json
import logging
from typing import Final

from ottla.base.clock import Clock
from ottla.broker.access.authorizer import Verdict
from ottla.broker.session import Session
from ottla.wire.acls import AclOperation, ResourceType
from ottla.wire.apis import API

#: Its level is INFO, whatever the others' is.
AUDIT: Final = logging.getLogger("ottla.audit")
#: Characters of what a stranger may have chosen.
_SHOWN: Final = 100


class Audit:
    """Writes the lines."""

    def __init__(self, clock: Clock, *, with_allowed: bool) -> None:
        self._clock = clock
        self._with_allowed = with_allowed
        AUDIT.setLevel(logging.INFO)

    def tell(
        self, session: Session, client_id: str, api_key: int, operation: int, kind: int, name: str, verdict: Verdict
    ) -> None:
        """One question and its answer; `kind` and `name` are the resource's."""
        if verdict.is_allowed and not self._with_allowed:
            return
        line = {
            "time_ms": self._clock.now_ms(),
            "result": "ALLOWED" if verdict.is_allowed else "DENIED",
            "principal": session.principal,
            "host": session.client_host.removeprefix("/"),
            "listener": session.listener,
            "client_id": client_id,
            "api": API[api_key].name,
            "operation": AclOperation(operation).name,
            "resource_type": ResourceType(kind).name,
            "resource_name": name,
            "rule": verdict.rule.value,
        }
        AUDIT.info("%s", json.dumps(line, ensure_ascii=True))

    def unauthenticated(self, session: Session, mechanism: str, why: str) -> None:
        """Somebody could not say who he is. What he sent is cut short: anybody may fill these lines."""
        line = {
            "time_ms": self._clock.now_ms(),
            "result": "UNAUTHENTICATED",
            "principal": session.principal,
            "host": session.client_host.removeprefix("/"),
            "listener": session.listener,
            "mechanism": mechanism[:_SHOWN],
            "reason": why[:_SHOWN],
        }
        AUDIT.info("%s", json.dumps(line, ensure_ascii=True))
