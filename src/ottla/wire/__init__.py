"""Kafka's wire: messages, frames, record batches, compression. Pure: bytes in, values out."""


def compiled() -> bool:
    """Whether the hot loops run compiled; else the same sources run interpreted, slower."""
    from ottla.wire import codec, hashing, record_codec, record_writer

    return not any(str(module.__file__).endswith(".py") for module in (codec, hashing, record_codec, record_writer))
