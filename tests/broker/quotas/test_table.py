"""Whose quota counts, and who shares it: every set of entities, beside Kafka's order written down."""

from __future__ import annotations

from itertools import chain, combinations

from ottla.broker.quotas.table import CLIENT_ID, IP, USER, Component, Entity, QuotaKey, QuotaTable, Sharers, entity

_ORDER: tuple[tuple[Entity, Sharers], ...] = (
    (entity([(USER, "alice"), (CLIENT_ID, "app")]), Sharers("alice", "app")),
    (entity([(USER, "alice"), (CLIENT_ID, None)]), Sharers("alice", "app")),
    (entity([(USER, "alice")]), Sharers("alice", "")),
    (entity([(USER, None), (CLIENT_ID, "app")]), Sharers("alice", "app")),
    (entity([(USER, None), (CLIENT_ID, None)]), Sharers("alice", "app")),
    (entity([(USER, None)]), Sharers("alice", "")),
    (entity([(CLIENT_ID, "app")]), Sharers("", "app")),
    (entity([(CLIENT_ID, None)]), Sharers("", "app")),
)


def _tables() -> list[tuple[QuotaTable, list[int]]]:
    """Every subset of the eight entities; each has its place in the order, and one, as its quota."""
    found = []
    for places in chain.from_iterable(combinations(range(8), size) for size in range(9)):
        table = QuotaTable()
        for place in places:
            table.set(_ORDER[place][0], QuotaKey.PRODUCE, float(place + 1))
        found.append((table, list(places)))
    return found


def test_the_first_entity_in_kafkas_order_counts() -> None:
    for table, places in _tables():
        found = table.limit(QuotaKey.PRODUCE, "alice", "app")
        expected = (_ORDER[places[0]][1], float(places[0] + 1)) if places else None
        assert found == expected, places
        assert table.limit(QuotaKey.FETCH, "alice", "app") is None
        assert table.is_on is bool(places)


def test_for_others_only_defaults_count() -> None:
    for table, places in _tables():
        bob = table.limit(QuotaKey.PRODUCE, "bob", "other")
        defaults = [place for place in places if place in (4, 5, 7)]
        assert (None if bob is None else bob[1]) == (float(defaults[0] + 1) if defaults else None), places


def test_without_a_client_id_only_quotas_of_users_count() -> None:
    for table, places in _tables():
        found = table.limit(QuotaKey.PRODUCE, "alice", "")
        of_users = [place for place in places if place in (2, 5)]
        assert found == ((Sharers("alice", ""), float(of_users[0] + 1)) if of_users else None), places


def test_each_quota_counts_by_itself_and_goes_with_its_last_entity() -> None:
    table = QuotaTable()
    changes: list[bool] = []
    table.changed = lambda: changes.append(table.is_on)
    alice = entity([(USER, "alice")])
    table.set(alice, QuotaKey.PRODUCE, 5.0)
    table.set(alice, QuotaKey.FETCH, 7.0)
    assert table.values(alice) == {"producer_byte_rate": 5.0, "consumer_byte_rate": 7.0}
    table.set(alice, QuotaKey.PRODUCE, None)
    assert table.limit(QuotaKey.PRODUCE, "alice", "app") is None
    assert table.limit(QuotaKey.FETCH, "alice", "app") == (Sharers("alice", ""), 7.0)
    table.set(alice, QuotaKey.FETCH, None)
    assert (list(table), changes) == ([], [True, True, True, False])


def test_addresses_have_quotas_of_their_own() -> None:
    table = QuotaTable()
    table.set(((IP, "10.0.0.1"),), QuotaKey.CONNECTIONS, 3.0)
    assert (table.is_on, table.has_addresses) == (False, True)
    assert table.of_address("10.0.0.2") is None
    table.set(((IP, None),), QuotaKey.CONNECTIONS, 9.0)
    assert (table.of_address("10.0.0.1"), table.of_address("10.0.0.2")) == (3.0, 9.0)
    table.set(((IP, "10.0.0.1"),), QuotaKey.CONNECTIONS, None)
    assert table.of_address("10.0.0.1") == 9.0


def test_filters_find_by_name_by_default_by_type_and_strictly() -> None:
    table = QuotaTable()
    for of, _ in _ORDER:
        table.set(of, QuotaKey.REQUEST, 1.0)

    def found(*components: Component, strict: bool = False) -> set[int]:
        entities = [of for of, _ in _ORDER]
        return {entities.index(of) for of, _ in table.matching(components, strict=strict)}

    assert found() == set(range(8))
    assert found(strict=True) == set()
    assert found(Component(USER, "alice")) == {0, 1, 2}
    assert found(Component(USER, "alice"), strict=True) == {2}
    assert found(Component(USER, None)) == {3, 4, 5}
    assert found(Component(USER, None, is_any=True)) == {0, 1, 2, 3, 4, 5}
    assert found(Component(USER, "alice"), Component(CLIENT_ID, None, is_any=True), strict=True) == {0, 1}
    assert found(Component(CLIENT_ID, "app"), strict=True) == {6}
    assert found(Component(IP, None, is_any=True)) == set()
