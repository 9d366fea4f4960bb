"""Giving freed memory back to the system.

Activations of ever different sizes leave glibc's heap full of holes, which it keeps: without this
an engine with 400 MB of live tensors takes 2.5 GB after a few training steps.
"""

import contextlib
import ctypes


def release() -> None:
    """Return what is free in the heap; takes some milliseconds. Only glibc can do it: elsewhere
    nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
