"""CRC-32C (Castagnoli), the checksum of a record batch, over the library crc32c."""

import importlib.machinery
import importlib.util
from collections.abc import Callable

Buffer = bytes | bytearray | memoryview


def _load() -> Callable[..., int]:
    """The compiled function of crc32c, without running the package's `__init__`.

    That file reads its version through importlib.metadata. It takes 30 ms, and a broker must be up within 500.
    """
    package = importlib.util.find_spec("crc32c")
    if package is not None and package.submodule_search_locations is not None:
        finder = importlib.machinery.PathFinder
        spec = finder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            found: Callable[..., int] = module.crc32c
            return found
    from crc32c import crc32c as imported

    fallback: Callable[..., int] = imported
    return fallback


_crc32c: Callable[..., int] = _load()


def crc32c(data: Buffer, before: int = 0) -> int:
    """The unsigned 32-bit CRC-32C of `data`, continuing from `before`, the CRC of the bytes in front of it.

    Nothing is copied: pass a memoryview for a part of a buffer.
    """
    return _crc32c(data, before)
