"""The resources whose settings can be changed while the broker runs: topics and groups, in one table."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ottla.base.config import ConfigSet
from ottla.broker.config import BrokerConfig
from ottla.broker.group_config import GROUP_CONFIG, check_group_configs, default_of
from ottla.broker.metadata.image import GROUP_RESOURCE, TOPIC_RESOURCE
from ottla.broker.metadata.rules import check_configs
from ottla.broker.topic_config import TOPIC_CONFIG, default_value


class Resource(NamedTuple):
    """One kind of resource. `check` raises RefusedError for settings of its own that cannot be."""

    keys: ConfigSet
    check: Callable[[BrokerConfig, Mapping[str, str | None]], dict[str, str]]
    #: A key's value without a setting of its own.
    default: Callable[[BrokerConfig, str], object]


ALTERABLE: Final[Mapping[int, Resource]] = {
    TOPIC_RESOURCE: Resource(TOPIC_CONFIG, check_configs, default_value),
    GROUP_RESOURCE: Resource(GROUP_CONFIG, check_group_configs, default_of),
}
