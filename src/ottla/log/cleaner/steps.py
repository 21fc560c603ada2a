"""What a step of a pass says: how many bytes it has read or written, or this."""

from typing import Final

#: It has done neither, but has gone through records or transactions: one of 0 bytes has waited for the disk.
WORKED: Final = 1
