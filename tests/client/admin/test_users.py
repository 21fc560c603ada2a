"""Users with SCRAM credentials in the admin client."""

from __future__ import annotations

import pytest

from ottla import Admin, ConfigError, DeleteScramCredential, ScramMechanism, SetScramCredential
from ottla.base.secret import Secret
from ottla.client.errors import KafkaError
from ottla.testing import Broker

_SHA_256, _SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def test_users_are_set_described_and_deleted(ottla_broker: Broker) -> None:
    with Admin({"bootstrap.servers": ottla_broker.bootstrap_servers}) as admin:
        admin.alter_user_scram_credentials(
            [
                SetScramCredential("users-a", _SHA_256, Secret("x")),
                SetScramCredential("users-b", _SHA_512, Secret("y"), 4096),
            ]
        )
        assert admin.describe_user_scram_credentials(["users-b", "users-a"]) == {
            "users-a": {_SHA_256: 8192},
            "users-b": {_SHA_512: 4096},
        }
        assert {"users-a", "users-b"} <= set(admin.describe_user_scram_credentials())
        admin.alter_user_scram_credentials([DeleteScramCredential("users-a", _SHA_256)])
        with pytest.raises(KafkaError, match=r"RESOURCE_NOT_FOUND.*users-a"):
            admin.describe_user_scram_credentials(["users-a"])
        with pytest.raises(KafkaError, match=r"RESOURCE_NOT_FOUND.*users-a"):
            admin.alter_user_scram_credentials([DeleteScramCredential("users-a", _SHA_256)])


def test_what_cannot_be_set_is_refused_and_no_password_is_shown(ottla_broker: Broker) -> None:
    wrong = SetScramCredential("users-c", _SHA_256, Secret("word-hunter2"), 100)
    assert "word-hunter2" not in repr(wrong)
    with Admin({"bootstrap.servers": ottla_broker.bootstrap_servers}) as admin:
        with pytest.raises(KafkaError, match="Too few iterations") as refused:
            admin.alter_user_scram_credentials([wrong])
        assert "word-hunter2" not in str(refused.value)
        with pytest.raises(ConfigError, match="a password is empty"):
            admin.alter_user_scram_credentials([wrong._replace(password=Secret(""))])
