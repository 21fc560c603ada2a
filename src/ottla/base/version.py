"""The version of this package: read here by the build, by `ottla.__version__`, and by what clients say to brokers."""

from typing import Final

VERSION: Final = "0.1.0"
