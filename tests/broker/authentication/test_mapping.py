"""`ssl.principal.mapping.rules`: the examples of KIP-371 and what Apache Kafka's SslPrincipalMapper gives."""

from __future__ import annotations

import pytest

from ottla.base.errors import ConfigError
from ottla.broker.authentication.mapping import NoRuleError, PrincipalRules

_RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U , DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=kafka-server1,OU=ServiceUsers,O=Unknown,L=Unknown", "kafka-server1"),
        ("CN=Client,OU=KafkaUsers,O=o,L=l,ST=s,C=SI", "client@kafkausers"),
        ("O=x,CN=adminUser,OU=y", "ADMINUSER"),
        ("OU=nobody", "OU=nobody"),
    ],
)
def test_the_first_rule_that_is_about_a_name_decides(name: str, principal: str) -> None:
    assert PrincipalRules(_RULES).name_of(name) == principal


@pytest.mark.parametrize(
    ("rule", "principal"),
    [
        ("RULE:^CN=(.*?),.*$/$1@$4/", "a@$4"),
        ("RULE:^CN=(.*?),.*$/$12/", "a2"),
        ("RULE:^CN=(.*?),.*$/\\$1/", "$1"),
        ("RULE:^CN=(.*?),O=(.*)$/$2\\/$1/", "b/a"),
        ("RULE:^cn=.*$/x/,DEFAULT", "CN=a,O=b"),
    ],
)
def test_references(rule: str, principal: str) -> None:
    assert PrincipalRules(rule).name_of("CN=a,O=b") == principal


def test_a_name_that_no_rule_is_about_is_nobodys() -> None:
    with pytest.raises(NoRuleError, match="'OU=x'"):
        PrincipalRules("RULE:^CN=(.*)$/$1/").name_of("OU=x")


@pytest.mark.parametrize("text", ["RULE:^CN=(.*?),OU=ServiceUsers.*$", "default", "RULE:a/b", "DEFAULT/L", "RULE:(/a/"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(text)
