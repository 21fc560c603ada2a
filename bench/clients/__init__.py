"""Python clients beside each other, by record: `python -m bench.clients BOOTSTRAP`, and a part of `make bench`.

shape.py        what is sent and read: sizes, partitions, compression; a topic that is filled with it
cost.py         what a record costs: CPU of the process and of the user's thread, and the clock
ottla.py        our client's loops
confluent.py    confluent-kafka's
aiokafka.py     aiokafka's
floor.py        the same loops with an empty function: what Python itself takes
"""
