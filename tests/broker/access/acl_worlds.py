"""ACLs and questions for properties: few names, so that they meet."""

from typing import NamedTuple

from hypothesis import strategies as st

from ottla.broker.access.acls import Acl
from ottla.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType

PRINCIPALS = ("User:alice", "User:bob", "User:CN=carol,O=home")
HOSTS = ("127.0.0.1", "10.0.0.7")
#: No character below `*`: Apache Kafka's search takes another way there (StandardAuthorizerData.checkSection).
NAMES = ("a", "ab", "abc", "abd", "b", "b-a", "ba", "hard", "hardcode")
TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
OPERATIONS = tuple(each for each in AclOperation if each > AclOperation.ALL)

acls = st.builds(
    Acl,
    st.sampled_from(TYPES),
    st.sampled_from((*NAMES, "*")),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    st.sampled_from((*PRINCIPALS, "User:*")),
    st.sampled_from((*HOSTS, "*")),
    st.sampled_from((AclOperation.ALL, *OPERATIONS)),
    st.sampled_from((AclPermissionType.DENY, AclPermissionType.ALLOW, AclPermissionType.ALLOW)),
)


class Question(NamedTuple):
    """May this principal do this, from this host?"""

    principal: str
    host: str
    operation: int
    resource_type: int
    name: str


questions = st.builds(
    Question,
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from(TYPES),
    st.sampled_from((*NAMES, "*", "abcd", "zz")),
)
#: Worlds of ACLs in which much is allowed and denied: the reading of one is short.
worlds = st.lists(acls, max_size=12, unique=True)
