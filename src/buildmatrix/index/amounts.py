"""How much of a wheel is read at `heads`; who shares out bytes goes by the same numbers."""

from __future__ import annotations

#: Compressed bytes of a member that are read as its beginning. In half of the large libraries the
#: names that they link stand in them.
HEAD = 64 << 10
#: A member with fewer compressed bytes is read whole: its facts are then complete.
SMALL = 256 << 10
#: Compressed bytes of all Python files together that are read anyway. What an import reaches cannot
#: be told from a part of them.
FEW_PYTHON = 1 << 20
#: A member is streamed up to this part of it as long as others wait, and there is not enough for
#: all: where device code is most of a file, most often it begins before.
FIRST_PART = 4
#: Compressed bytes of a member that are read as its end, where its beginning leaves open what its
#: data is: at first, and where that does not hold the names of all sections. Deflate begins a block
#: every 10 to 40 KiB.
ENDS = (64 << 10, 256 << 10)
#: Binaries of one wheel whose ends are read; those with most data first.
MOST_ENDS = 16
