"""Facts of files: what their bytes say, without any vendor.

`trees` gives access to folders, wheels and archives; `elf` and `binaries` read binaries and device
code; `python_imports` reads Python source; `inventory` joins them. `loader` answers from an
inventory which library ld.so finds, and `symbols` has LIEF demangle names in a process of its own.
Untrusted files enter, an immutable `Inventory` leaves. Nothing that is read is imported or run.
"""
