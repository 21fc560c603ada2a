"""What a handler can touch stands in its signature."""

import inspect
import re
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from ottla.broker.handlers.table import TABLE, Entry
from ottla.broker.node import Node
from ottla.broker.ports.access import HasAccess
from ottla.broker.ports.acls import HasAcls
from ottla.broker.ports.answers import HasAnswers
from ottla.broker.ports.features import HasFeatures
from ottla.broker.ports.groups import HasGroups
from ottla.broker.ports.identity import HasIdentity, HasRandom
from ottla.broker.ports.metadata_log import HasMetadataLog
from ottla.broker.ports.partitions import HasPartitions
from ottla.broker.ports.quotas import HasQuotas
from ottla.broker.ports.refusals import HasRefusals
from ottla.broker.ports.searches import HasSearches
from ottla.broker.ports.sessions import HasSessions
from ottla.broker.ports.settings import HasClock, HasConfig
from ottla.broker.ports.slices import HasSlices
from ottla.broker.ports.topics import HasImage, HasTopics
from ottla.broker.ports.transactions import HasMarkers, HasProducerIds, HasTransactions, HasVerification
from ottla.broker.ports.users import HasUsers

#: For the broker's own work, not for requests.
_NOT_FOR_HANDLERS = {"events", "timers"}


def _declared(entry: Entry) -> set[str]:
    """The ports that the handler's signature names."""
    node = get_type_hints(entry.load())["node"]
    return {name for each in node.__mro__ for name, value in vars(each).items() if isinstance(value, property)}


@pytest.mark.parametrize("entry", TABLE.values(), ids=lambda entry: entry.key.name)
def test_a_handler_declares_the_ports_that_it_touches_and_no_others(entry: Entry) -> None:
    # That it touches no others is mypy's to say: `node` has nothing else.
    source = inspect.getsource(inspect.getmodule(entry.load()) or object)
    touched = set(re.findall(r"\bself\._node\.(\w+)|\bnode\.(\w+)", source))
    assert _declared(entry) == {one or other for one, other in touched}
    assert "import Node" not in source


def test_every_port_is_of_use_to_some_handler() -> None:
    used = set().union(*(_declared(entry) for entry in TABLE.values()))
    assert used == {field.name for field in fields(Node)} - _NOT_FOR_HANDLERS


def every_need(
    node: Node,
) -> tuple[
    HasAccess,
    HasAnswers,
    HasAcls,
    HasClock,
    HasConfig,
    HasFeatures,
    HasGroups,
    HasIdentity,
    HasImage,
    HasMarkers,
    HasMetadataLog,
    HasPartitions,
    HasProducerIds,
    HasQuotas,
    HasRandom,
    HasRefusals,
    HasSearches,
    HasSessions,
    HasSlices,
    HasTopics,
    HasTransactions,
    HasUsers,
    HasVerification,
]:
    """Handlers are called by name, so mypy sees only here that a node is what each of them asks for."""
    return (node,) * 23


def test_mypy_sees_that_a_node_is_all_that_handlers_ask_for() -> None:
    needs = get_args(get_type_hints(every_need)["return"])
    asked = {name for need in needs for name, value in vars(need).items() if isinstance(value, property)}
    assert asked == {field.name for field in fields(Node)} - _NOT_FOR_HANDLERS
