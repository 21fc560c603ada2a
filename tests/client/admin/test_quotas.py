"""Quotas in the admin client."""

from __future__ import annotations

import pytest

from ottla import (
    Admin,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ConfigError,
    NewTopic,
    RequestTimeoutError,
)
from ottla.client.errors import KafkaError
from ottla.testing import Broker

_EVE = ClientQuotaEntity(user="quotas-eve")
_EVES_APP = ClientQuotaEntity(user="quotas-eve", client_id="app")
_EVES_OTHERS = ClientQuotaEntity(user="quotas-eve", client_id="")


def test_quotas_are_set_found_and_removed(ottla_broker: Broker) -> None:
    with Admin({"bootstrap.servers": ottla_broker.bootstrap_servers}) as admin:
        rates = {"producer_byte_rate": 10.0, "consumer_byte_rate": 20.0}
        admin.alter_client_quotas(
            [ClientQuotaAlteration(each, rates) for each in (_EVE, _EVES_APP, _EVES_OTHERS)], validate_only=True
        )
        assert admin.describe_client_quotas(ClientQuotaFilter(user="quotas-eve")) == {}
        admin.alter_client_quotas([ClientQuotaAlteration(each, rates) for each in (_EVE, _EVES_APP, _EVES_OTHERS)])
        assert admin.describe_client_quotas(ClientQuotaFilter(user="quotas-eve", strict=True)) == {_EVE: rates}
        found = admin.describe_client_quotas(ClientQuotaFilter(user="quotas-eve", any_client_id=True))
        assert found == {_EVES_OTHERS: rates, _EVES_APP: rates}
        assert admin.describe_client_quotas(ClientQuotaFilter(user="quotas-eve", client_id="")) == {_EVES_OTHERS: rates}
        gone = dict.fromkeys(rates)
        admin.alter_client_quotas([ClientQuotaAlteration(each, gone) for each in (_EVE, _EVES_APP, _EVES_OTHERS)])
        assert admin.describe_client_quotas(ClientQuotaFilter(user="quotas-eve")) == {}


def test_what_is_wrong_is_said(ottla_broker: Broker) -> None:
    with Admin({"bootstrap.servers": ottla_broker.bootstrap_servers}) as admin:
        with pytest.raises(KafkaError, match=r"quotas of user quotas-eve: Quota request_percentage must be greater"):
            admin.alter_client_quotas([ClientQuotaAlteration(_EVE, {"request_percentage": 0.0})])
        with pytest.raises(ConfigError, match="quotas of whom"):
            admin.alter_client_quotas([ClientQuotaAlteration(ClientQuotaEntity(), {"request_percentage": 1.0})])
        with pytest.raises(KafkaError, match="IP filter component"):
            admin.describe_client_quotas(ClientQuotaFilter(user="x", ip="10.0.0.1"))


def test_a_change_of_topics_above_the_quota_is_repeated_for_those_that_are_left(ottla_broker: Broker) -> None:
    config = {"bootstrap.servers": ottla_broker.bootstrap_servers, "client.id": "quotas-maker"}
    entity = ClientQuotaEntity(client_id="quotas-maker")
    with Admin(config) as admin:
        admin.alter_client_quotas([ClientQuotaAlteration(entity, {"controller_mutation_rate": 50.0})])
        # 550 are there at once. The second takes the rest and one more, so that the third waits for 20 ms.
        made = admin.create_topics(
            [NewTopic("quotas-a", 549), NewTopic("quotas-b", 2), NewTopic("quotas-c", 1)], timeout_ms=20_000
        )
        assert sorted(made) == ["quotas-a", "quotas-b", "quotas-c"]
        admin.alter_client_quotas([ClientQuotaAlteration(entity, {"controller_mutation_rate": 0.001})])
        with pytest.raises(RequestTimeoutError, match="THROTTLING_QUOTA_EXCEEDED"):
            admin.create_topics([NewTopic("quotas-d", 1), NewTopic("quotas-e", 1)], timeout_ms=2_000)
    with Admin({"bootstrap.servers": ottla_broker.bootstrap_servers}) as admin:
        admin.alter_client_quotas([ClientQuotaAlteration(entity, {"controller_mutation_rate": None})])
        admin.delete_topics(["quotas-a", "quotas-b", "quotas-c"])
