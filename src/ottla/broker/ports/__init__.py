"""What handlers may touch, a module for each concern.

Each module has a protocol `Has…` with one attribute, the port. A handler takes its node as just those protocols that it
needs, so its signature says what it can touch, and mypy holds it to that. `ottla.broker.node.Node` has all ports.
"""
