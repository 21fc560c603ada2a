"""On which brokers the tests of the Spark room run."""

import pytest

APACHE_KAFKA = "Apache Kafka"

#: Runs a test on our broker and, in `make interop`, on Apache Kafka too. For tests that use the fixture `bootstrap`.
on_either_broker = pytest.mark.parametrize(
    "bootstrap", ["Ottla", pytest.param(APACHE_KAFKA, marks=pytest.mark.interop)], indirect=True
)
