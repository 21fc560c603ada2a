"""What a user can do about a coordinator's refusal, whichever protocol the group speaks."""

from collections.abc import Mapping
from typing import Final

from ottla.wire.errors import ErrorCode

COMMON: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.FENCED_INSTANCE_ID: "another consumer has taken over this group.instance.id: close this one, and give "
    "every consumer an id of its own",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this client may not read in the group: ask for READ on it",
    ErrorCode.INVALID_GROUP_ID: "the coordinator does not take this group.id: choose another one",
}
