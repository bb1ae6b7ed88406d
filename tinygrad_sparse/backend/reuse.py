"""Memory of freed arrays is used again, not asked of the system in every step. Floor 1."""

import numpy as np

# glibc takes no larger bound than 32 MiB; with what malloc puts before and after it, this is less.
LARGEST = 2**25 - 2**17


def reuse_freed_memory() -> None:
    """Let malloc keep up to 64 MiB of freed memory, for arrays of less than 32 MiB.

    glibc gives memory back as soon as a few arrays of a step are freed, and the system zeroes it
    page by page when the next step asks for it. It stops once a program has freed an array of this
    size: from then on it keeps twice as much. So one comes and goes here; none of its pages is ever
    written, so it costs two calls of the system. Elsewhere than in glibc, and where MALLOC_
    variables have set the bounds, this does nothing.
    """
    np.empty(LARGEST, np.uint8)
