"""`sasl.jaas.config`, so that a Java client's properties file works as it is: one login module and its options.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";

A broker's is the same, with options `user_<name>="password"` for PLAIN. No error repeats any of the text: it holds
passwords.
"""

import re
from typing import Final, NamedTuple

from ottla.base.errors import ConfigError
from ottla.wire.sasl import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512

_PACKAGE: Final = "org.apache.kafka.common.security."
#: Login module → the mechanisms that it is for.
MODULES: Final = {
    f"{_PACKAGE}plain.PlainLoginModule": (PLAIN,),
    f"{_PACKAGE}scram.ScramLoginModule": (SCRAM_SHA_256, SCRAM_SHA_512),
    f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule": (OAUTHBEARER,),
}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"'=;]+)|([=;]))""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r"}


class Jaas(NamedTuple):
    """One login module and its options."""

    mechanisms: tuple[str, ...]
    options: dict[str, str]


def read_jaas(text: str) -> Jaas:
    """The login module in `text`. Raises ConfigError if it is not one that is known here, or is not well formed."""
    tokens = _tokens(text)
    module = tokens[0] if tokens else ""
    if module not in MODULES:
        names = ", ".join(name.rpartition(".")[2] for name in MODULES)
        raise ConfigError(f"sasl.jaas.config: the login modules that are known here are {names} of {_PACKAGE}*")
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";":
        raise ConfigError(
            f'sasl.jaas.config: expected {module} required name="value" ...; (a semicolon ends it). '
            "The value is not shown, because it holds a password"
        )
    return Jaas(MODULES[module], _options(tokens[2:-1]))


def _options(tokens: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for at in range(0, len(tokens), 3):
        if len(tokens) < at + 3 or tokens[at + 1] != "=":
            raise ConfigError('sasl.jaas.config: options are name="value", separated by spaces, before one semicolon')
        options[tokens[at]] = tokens[at + 2]
    return options


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at, text = 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError("sasl.jaas.config: a quotation mark is missing")
        double, single, word, sign = match.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            found.append(_ESCAPED.sub(lambda each: _CONTROLS.get(each[1], each[1]), quoted))
        else:
            found.append(word or sign)
        at = match.end()
    return found
