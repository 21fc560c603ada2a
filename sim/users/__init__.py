"""The users of the clients: simulated programs. What they do is drawn from the seed."""
