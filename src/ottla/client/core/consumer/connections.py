"""Which brokers can be asked: connections that are open, being opened, and what waits for one."""

from ottla.client.core.intents import Ask, Broker, Channel, Connect


class Connections:
    """A request to a broker that is not connected waits until it is; `ask` and the events say what to intend."""

    def __init__(self) -> None:
        self._open: set[Broker] = set()
        self._waiting: dict[Broker, list[Ask]] = {}

    def is_open(self, broker: Broker) -> bool:
        """Whether requests can be sent."""
        return broker in self._open

    def connect(self, broker: Broker) -> list[object]:
        """Have it connected, if nobody has asked for that yet."""
        if broker in self._waiting:
            return []
        self._waiting[broker] = []
        return [Connect(*broker)]

    def ask(self, broker: Broker, ask: Ask) -> list[object]:
        """Send `ask`, now or when it is connected."""
        if broker in self._open:
            return [ask]
        wanted = self.connect(broker)
        self._waiting[broker].append(ask)
        return wanted

    def connected(self, node_id: int, channel: Channel) -> list[Ask]:
        """It is open: what can be sent now."""
        broker = Broker(node_id, channel)
        self._open.add(broker)
        return self._waiting.pop(broker, [])

    def unreachable(self, node_id: int, channel: Channel) -> list[Ask]:
        """It could not be opened: what has failed with that."""
        return self._waiting.pop(Broker(node_id, channel), [])

    def closed(self, node_id: int, channel: Channel) -> None:
        """It is open no more."""
        self._open.discard(Broker(node_id, channel))
