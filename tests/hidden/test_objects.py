"""No object of a configuration shows a secret, whichever key it came by, however deep it lies; nor does an error."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.base.config import ConfigType
from ottla.base.errors import ConfigError
from ottla.base.secret import Secret
from ottla.broker.config import BrokerConfig
from ottla.client.config import COMMON_KEYS
from ottla.client.config.admin import admin_config
from ottla.client.config.consumer import consumer_config
from ottla.client.config.producer import producer_config
from ottla.spark.options import sink_options, source_options
from tests.broker import four_listeners
from tests.hidden.talker import said_of
from tests.marked import MARK

_SECRET_KEYS = sorted(key.name for key in COMMON_KEYS if key.type is ConfigType.PASSWORD)
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_PLAIN = {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
_OAUTH = {**_PLAIN, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://issuer.example/t"}
_WITH_SECRETS: tuple[dict[str, str], ...] = (
    {**_PLAIN, "sasl.username": "alice", "sasl.password": f"a-{MARK}", "ssl.key.password": f"b-{MARK}"},
    {**_PLAIN, "sasl.jaas.config": f'{_MODULE} required username="alice" password="c-{MARK}";'},
    {**_PLAIN, "sasl.username": "alice", "sasl.password": MARK, "ssl.certificate.pem": "C", "ssl.key.pem": f"d-{MARK}"},
    {
        **_OAUTH,
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": f"e-{MARK}",
    },
)


def _as_options(config: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in config.items()}


def _source(config: Mapping[str, str]) -> object:
    return source_options({"subscribe": "t", **_as_options(config)}, streaming=True)


def _sink(config: Mapping[str, str]) -> object:
    return sink_options({"sink.id": "s", "topic": "t", **_as_options(config)})


_PARSERS: dict[str, Callable[[Mapping[str, str]], object]] = {
    "admin": admin_config,
    "producer": producer_config,
    "consumer": consumer_config,
    "source": _source,
    "sink": _sink,
}


def _ours(root: object) -> Iterator[object]:
    """`root`, and the objects of Ottla's own kinds that hang on it."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        if type(one).__module__.startswith("ottla"):
            yield one
            waiting += gc.get_referents(one)
        elif isinstance(one, dict | list | tuple | set | frozenset):
            waiting += gc.get_referents(one)


def _shown(root: object) -> list[str]:
    return [f"{type(one).__name__}: {text}" for one in _ours(root) for text in (repr(one), str(one), f"{one}")]


@pytest.mark.parametrize("kind", _PARSERS)
@pytest.mark.parametrize("config", _WITH_SECRETS, ids=["password", "jaas", "key", "client secret"])
def test_x1_no_object_of_a_clients_configuration_shows_a_secret(kind: str, config: dict[str, str]) -> None:
    parsed = _PARSERS[kind](config)
    assert [text for text in _shown(parsed) if MARK in text] == []


def test_x1_the_secrets_are_there_all_the_same() -> None:
    for config in _WITH_SECRETS:
        secrets = [one for one in _ours(admin_config(config)) if isinstance(one, Secret)]
        assert any(MARK in each.reveal() for each in secrets), "what is not there cannot be shown"


@pytest.mark.parametrize("kind", _PARSERS)
@pytest.mark.parametrize("key", _SECRET_KEYS)
def test_x1_no_error_about_a_secrets_key_repeats_its_value(kind: str, key: str) -> None:
    """Each key alone, without what belongs to it: an error, or nothing. Also as a number, which no password is."""
    for value in (MARK, 7_004_127):
        try:
            _PARSERS[kind]({**_PLAIN, key: value})  # type: ignore[dict-item]
        except ConfigError as fault:
            assert [text for text in said_of(fault) if str(value) in text] == []


def test_x1_what_spark_pickles_shows_no_secret_when_it_is_read_again() -> None:
    for parse in (_source, _sink):
        again: Any = pickle.loads(pickle.dumps(parse(_WITH_SECRETS[0])))
        assert [text for text in _shown(again) if MARK in text] == []


def test_no_object_of_a_brokers_configuration_shows_a_secret(tmp_path: Path) -> None:
    four_listeners.make_certificates(tmp_path)
    config = BrokerConfig(four_listeners.settings(tmp_path))
    assert [text for text in _shown(config) if MARK in text] == []


def test_negative_control_an_object_that_shows_its_secret_is_found() -> None:
    config = admin_config(_WITH_SECRETS[0])
    assert config.security.sasl is not None
    assert [text for text in _shown(replace(config.security.sasl, username=MARK)) if MARK in text]
