"""The security matrix: two brokers, five clients, each protocol and mechanism, right and wrong."""
