"""Which topics metadata is kept of, and who needs them: several clients may share one view of the cluster."""

from collections.abc import Container, Iterable, Set


class Tracked:
    """The topics that are tracked by name, and whether all topics are followed."""

    def __init__(self, *, auto_create_topics: bool) -> None:
        #: The tracked topics.
        self.topics: set[str] = set()
        #: Those that no broker has described yet: the broker may create them.
        self.to_create: set[str] = set()
        self._auto_create_topics = auto_create_topics
        #: Who has tracked which topics, for those who gave `by`.
        self._needed: dict[object, set[str]] = {}
        #: Who follows all topics.
        self._followers: set[object] = set()

    @property
    def follows_all(self) -> bool:
        """Whether somebody follows all topics."""
        return bool(self._followers)

    def add(self, topics: set[str], known: Container[str], by: object) -> bool:
        """`by` needs these topics (None: nobody in particular). Returns whether any of them is new, or may be created
        again because it is not `known`."""
        if by is not None:
            self._needed.setdefault(by, set()).update(topics)
        added = topics - self.topics
        if self._auto_create_topics:
            missing = {topic for topic in topics if topic not in known} - self.to_create
            self.to_create |= missing
            added |= missing
        self.topics |= added
        return bool(added)

    def remove(self, topics: Iterable[str], by: object) -> set[str]:
        """`by` does not need these topics any more. Returns those that nobody else needs: they are not tracked now."""
        gone = set(topics)
        self._needed.get(by, set()).difference_update(gone)
        return self.drop(gone)

    def leave(self, by: object, known: Container[str]) -> set[str]:
        """`by` has ended: it needs no topic any more. Returns those that are not tracked now: nobody else needs them,
        and they are not `known`. What is known stays, for whoever asks next."""
        return self.drop({topic for topic in self._needed.pop(by, set()) if topic not in known})

    def drop(self, topics: Set[str]) -> set[str]:
        """Do not track these topics any more, but for those that somebody needs. Returns which are not tracked now."""
        gone = (self.topics & topics).difference(*self._needed.values())
        self.topics -= gone
        self.to_create -= gone
        return gone

    def follow_all(self, by: object) -> None:
        """`by` follows all topics: a pattern has to find what it matches."""
        self._followers.add(by)

    def unfollow_all(self, by: object) -> bool:
        """`by` does not. Returns whether it was the last one who did."""
        was_followed = self.follows_all
        self._followers.discard(by)
        return was_followed and not self.follows_all
