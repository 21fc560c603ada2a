"""Metadata of all topics while others are made, with an authorizer: whatever is told was decided on, in turns."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from ottla.broker.access.audit import Audit
from ottla.broker.access.authorizer import Authorizer, Verdict
from ottla.broker.handlers import metadata
from ottla.broker.handlers.parts import PART_NAMES
from ottla.broker.handlers.table import RequestContext
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.records import AccessControlEntryRecord, TopicRecord
from ottla.broker.ports.access import Access
from ottla.broker.runtime.slices import TURN_MS, Slices
from ottla.broker.session import ANONYMOUS, Session
from ottla.testing import AsyncBroker
from ottla.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.apis import ApiKey
from ottla.wire.messages.metadata import MetadataRequest
from tests.broker.ticking import TickingClock, steps, turns

_CONTEXT = RequestContext(ApiKey.METADATA, 9, 1, "c", Session("PLAINTEXT", "/127.0.0.1"))
_THERE, _MADE = 2 * PART_NAMES, 5 * PART_NAMES


class _Counting(Authorizer):
    """How often it was asked."""

    asked = 0

    def decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Verdict:
        self.asked += 1
        return super().decide(principal, host, operation, resource_type, name)


def _make(image: MetadataImage, numbers: Iterable[int]) -> None:
    for number in numbers:
        image.apply(TopicRecord(f"t{number}", number.to_bytes(16)))


async def test_topics_that_are_made_while_all_are_asked_for_are_decided_on_in_turns() -> None:
    """Who creates thousands had them all decided on in one turn: thirty microseconds each."""
    image, hidden = MetadataImage(), f"t{_THERE + 1}"
    _make(image, range(_THERE))
    refused = (PatternType.LITERAL, ANONYMOUS, "*", AclOperation.DESCRIBE, AclPermissionType.DENY)
    image.apply(AccessControlEntryRecord(bytes(16), ResourceType.TOPIC, hidden, *refused))
    authorizer = _Counting(image.acls, frozenset(), allow_everyone_if_no_acl=True)
    clock = TickingClock()
    async with AsyncBroker() as broker:
        node = SimpleNamespace(
            access=Access(authorizer, Audit(clock, with_allowed=False), tells_logins=False),
            identity=broker.node.identity,
            image=image,
            slices=Slices(clock),
            topics=broker.node.topics,
        )
        answer: Any = metadata.handle(cast(Any, node), MetadataRequest(None), _CONTEXT)
        for _ in range(10):
            await asyncio.sleep(0)
        assert 0 < authorizer.asked < _THERE
        _make(image, range(_THERE, _THERE + _MADE))
        seen = await turns(answer, lambda: authorizer.asked)
    assert max(steps(seen)) <= max(PART_NAMES, 2 * TURN_MS) + 1
    told = [each.name for each in (await answer).topics]
    assert told == [f"t{number}" for number in range(_THERE + _MADE) if f"t{number}" != hidden]
