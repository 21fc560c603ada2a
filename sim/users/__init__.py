"""Those who use the clients: what programs do that somebody else writes, drawn from the seed."""
