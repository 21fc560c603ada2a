"""A8, G11, G14, G15, G17, G20, G21: each client in each protocol on each broker, alone and in pairs of two clients.

Every cell is one group, to which all of `matrix/events.py` happens, one after the other; in the end the checkers of
histories judge all that its members did and were told. docs/testing.md has the table of the cells.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.house.tree import ROOT
from tests.interop.matrix.clients import CLIENTS, MODES, STRATEGIES, has, says_that_it_has_not
from tests.interop.matrix.crew import SESSION_MS, Crew
from tests.interop.matrix.events import ALL, SHORT, Event, strategy_changes
from tests.interop.nodes import Node, node_of

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]
_CONFIG = {
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.migration.policy": "bidirectional",
}
#: One for each client: what CI can afford.
_IN_CI = {
    "ours": "cooperative",
    "confluent-kafka": "consumer",
    "java": "consumer",
    "kafka-python": "eager",
    "aiokafka": "eager",
}
_CELLS = [(client, mode) for client in CLIENTS for mode in MODES if has(client, mode)]
_EMPTY = [(client, mode) for client in CLIENTS for mode in MODES if not has(client, mode)]
_PAIRS = [
    (mode, *pair)
    for mode in MODES
    for pair in itertools.combinations([client for client in CLIENTS if has(client, mode)], 2)
]


@pytest.fixture(params=["ottla", "apache"], scope="module")
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Our broker, then Apache Kafka."""
    if request.param == "apache":
        request.getfixturevalue("apache_jars")
    with node_of(request.param, tmp_path_factory.mktemp("matrix"), _CONFIG) as node:
        yield node


@pytest.fixture(scope="module")
def short_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Our broker alone."""
    with node_of("ottla", tmp_path_factory.mktemp("matrix"), _CONFIG) as node:
        yield node


def _happen(events: Sequence[Event], node: Node, fresh: Fresh, mode: str, clients: Sequence[str]) -> None:
    protocol, old, new = STRATEGIES[mode]
    strategies = {"strategy": old if strategy_changes in events else new, "next_strategy": new}
    with Crew(node, fresh("cell"), fresh("group"), clients=clients, protocol=protocol, **strategies) as crew:
        for event in events:
            event(crew)
        crew.judge()


@pytest.mark.usefixtures("apache_jars")
@pytest.mark.parametrize(("client", "mode"), _IN_CI.items())
def test_g11_one_cell_of_each_client(client: str, mode: str, short_node: Node, fresh: Fresh) -> None:
    _happen(SHORT, short_node, fresh, mode, [client])


@pytest.mark.slow
@pytest.mark.usefixtures("apache_jars")
@pytest.mark.parametrize(("client", "mode"), _CELLS)
def test_g11_a_group_lives_through_everything(client: str, mode: str, node: Node, fresh: Fresh) -> None:
    _happen(ALL, node, fresh, mode, [client])


@pytest.mark.slow
@pytest.mark.usefixtures("apache_jars")
@pytest.mark.parametrize(("mode", "one", "other"), _PAIRS)
def test_g11_two_clients_share_a_group(mode: str, one: str, other: str, node: Node, fresh: Fresh) -> None:
    _happen(ALL, node, fresh, mode, [one, other])


@pytest.mark.parametrize(("client", "mode"), _EMPTY)
def test_an_empty_cell_is_empty_because_the_client_says_so(client: str, mode: str) -> None:
    """When this fails the client has learned it: take the cell out of `_HAVE_NOT` in `matrix/clients.py`."""
    assert says_that_it_has_not(client, mode)


def test_the_documents_table_has_these_cells() -> None:
    """docs/testing.md."""

    def told(client: str, mode: str) -> str:
        if not has(client, mode):
            return "has none"
        return "yes, in CI" if _IN_CI[client] == mode else "yes"

    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    for client in CLIENTS:
        assert f"| {' | '.join([client, *(told(client, mode) for mode in MODES)])} |" in page
