"""Clients that note in a `History` what they are asked for and told, for the tests of chaos and of interop.

Each is a subclass of the client's own class, and takes the history and a name of its own behind the settings. A record
is known by its topic and its value: give no two records of a topic the same value. `final` reads back what is there in
the end, with a client that is not ours.
"""
