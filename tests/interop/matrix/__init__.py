"""The interop matrix: each client in each protocol on each broker, through all that happens to a group."""
