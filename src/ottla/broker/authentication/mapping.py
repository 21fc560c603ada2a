"""`ssl.principal.mapping.rules` (KIP-371): from a distinguished name to the name of a principal. Pure.

    RULE:^CN=([^,]+),.*$/$1/L,DEFAULT

The first rule whose pattern is the whole name decides. `$1` is what the first group has matched, `L` and `U` make small
or capital letters of the result. `DEFAULT` takes the name as it is.
"""

import re
from typing import Final, NamedTuple

from ottla.base.errors import ConfigError

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\\(.)|\$([0-9]+)", re.DOTALL)


class NoRuleError(ConfigError):
    """No rule is about this name, so it is nobody's."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: str
    letters: str

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._expanded, name)
        return result.lower() if self.letters == "L" else result.upper() if self.letters == "U" else result

    def _expanded(self, match: re.Match[str]) -> str:
        def reference(found: re.Match[str]) -> str:
            if found[1] is not None:
                return str(found[1])
            # As in Java: as many digits as give a group that there is; the others are text.
            digits = found[2]
            for end in range(len(digits), 0, -1):
                if int(digits[:end]) <= match.re.groups:
                    return (match[int(digits[:end])] or "") + digits[end:]
            return found[0]

        return _REFERENCE.sub(reference, self.replacement)


class PrincipalRules:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError for what is no rule, or a pattern that Python cannot read."""
        self._rules: list[_Rule | None] = []
        for found in _SPLITTER.finditer(text.strip()):
            rule = found[1]
            parsed = _PARSER.match(rule)
            if parsed is None or parsed.end() != len(rule):
                raise ConfigError(f"ssl.principal.mapping.rules: {rule!r} is no rule: expected RULE:pattern/name/[LU]")
            if parsed[1] is not None:
                self._rules.append(None)
            elif parsed[2] is not None:
                self._rules.append(_Rule(_pattern(parsed[2]), parsed[3], parsed[4]))

    def name_of(self, distinguished_name: str) -> str:
        """The principal's name. Raises NoRuleError when no rule is about it."""
        for rule in self._rules:
            name = distinguished_name if rule is None else rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoRuleError(f"no rule of ssl.principal.mapping.rules is about {distinguished_name!r}")


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as fault:
        raise ConfigError(f"ssl.principal.mapping.rules: the pattern {text!r} cannot be read: {fault}") from None
