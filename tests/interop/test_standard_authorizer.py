"""Our answers beside those of Apache Kafka's own StandardAuthorizer, in one JVM (SPEC X3)."""

import random
import subprocess
from pathlib import Path

import pytest

from ottla.broker.access.acls import Acl, Acls
from ottla.broker.access.authorizer import Authorizer, java_host
from ottla.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from tests.broker.access.acl_worlds import HOSTS, NAMES, OPERATIONS, PRINCIPALS, TYPES, Question
from tests.interop import apache

pytestmark = pytest.mark.interop

_ORACLE = Path(__file__).with_name("access") / "Oracle.java"
_SUPER_USER = "User:root"
_HOSTS = (*HOSTS, java_host("::1"))
_World = tuple[list[Acl], bool, list[Question]]


def _world(rng: random.Random) -> _World:
    """Some ACLs, whether everybody may what has none, and questions."""
    acls = {
        Acl(
            rng.choice(TYPES),
            rng.choice((*NAMES, "*")),
            rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
            rng.choice((*PRINCIPALS, "User:*")),
            rng.choice((*_HOSTS, "*", "*")),
            rng.choice((AclOperation.ALL, *OPERATIONS)),
            rng.choice((AclPermissionType.DENY, AclPermissionType.ALLOW, AclPermissionType.ALLOW)),
        )
        for _ in range(rng.choice((0, 1, 3, 10, 30, 100)))
    }
    asked = [
        Question(
            rng.choice((*PRINCIPALS, *PRINCIPALS, _SUPER_USER)),
            rng.choice(_HOSTS),
            rng.choice(OPERATIONS),
            rng.choice(TYPES),
            rng.choice((*NAMES, "abcd", "zz", "*")),
        )
        for _ in range(25)
    ]
    return sorted(acls), rng.random() < 0.3, asked


def _lines(world: _World) -> list[str]:
    acls, everybody, asked = world
    said: list[tuple[object, ...]] = [("NEW", _SUPER_USER, str(everybody).lower())]
    said += [("ACL", *map(_text, each)) for each in acls]
    for question in asked:
        said.append(("ASK", *map(_text, question)))
        said.append(("ANY", *map(_text, question[:4])))
    return ["\t".join(map(str, each)) for each in said]


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, int) else str(value)


def _ours(world: _World) -> list[str]:
    acls, everybody, asked = world
    found = Acls()
    for number, each in enumerate(acls):
        found.add(number.to_bytes(16), each)
    authorizer = Authorizer(found, [_SUPER_USER], allow_everyone_if_no_acl=everybody)
    answers = []
    for question in asked:
        answers.append(authorizer.decide(*question).is_allowed)
        answers.append(authorizer.decide_somewhere(*question[:3], ResourceType(question[3])).is_allowed)
    return ["ALLOWED" if each else "DENIED" for each in answers]


def test_every_answer_is_that_of_apache_kafkas_standard_authorizer(apache_jars: str) -> None:
    rng = random.Random(13)
    worlds = [_world(rng) for _ in range(200)]
    command = [apache.java(), "-Xmx256M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", f"{apache_jars}/*"]
    said = "\n".join(line for world in worlds for line in _lines(world))
    done = subprocess.run(
        [*command, str(_ORACLE)], input=said, capture_output=True, text=True, encoding="utf-8", timeout=300, check=True
    )
    theirs = [line for line in done.stdout.splitlines() if line in ("ALLOWED", "DENIED")]
    ours = [answer for world in worlds for answer in _ours(world)]
    assert len(ours) == 200 * 25 * 2
    assert 2_000 < ours.count("ALLOWED") < 8_000, "both answers are common"
    questions = [(world[0], world[1], each) for world in worlds for each in world[2] for _ in range(2)]
    different = [(where, we, they) for where, we, they in zip(questions, ours, theirs, strict=True) if we != they]
    assert different == []
