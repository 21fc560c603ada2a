"""SPEC X1: `sasl.jaas.config` as Java reads it, and no error that repeats its password."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ConfigError
from ottla.wire.sasl.jaas import read_jaas

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_x1_a_module_and_its_options() -> None:
    jaas = read_jaas(f"{_PLAIN} required\n  username=\"alice\"\tpassword='p w' plain=word ;\n")
    assert jaas.mechanisms == ("PLAIN",)
    assert jaas.options == {"username": "alice", "password": "p w", "plain": "word"}


@given(password=st.text(max_size=20))
def test_x1_any_password_can_be_quoted(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert read_jaas(f'{_PLAIN} required password="{quoted}";').options == {"password": password}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "login modules that are known here"),
        ('com.sun.security.auth.module.Krb5LoginModule required password="hunter2";', "login modules"),
        (f'{_PLAIN} password="hunter2";', "semicolon"),
        (f'{_PLAIN} required password="hunter2"', "semicolon"),
        (f'{_PLAIN} required password="hunter2;', "quotation mark"),
        (f'{_PLAIN} required password "hunter2";', "options are"),
        (f'{_PLAIN} required password="hunter2" user;', "options are"),
        (f'{_PLAIN} required password="hunter2"; {_PLAIN} required;', "options are"),
    ],
)
def test_x1_what_is_not_well_formed_is_refused_and_not_shown(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        read_jaas(text)
    assert "hunter2" not in str(refused.value)
