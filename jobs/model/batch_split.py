"""Splits a batch into smaller ones whose gradients are accumulated, so that each update still sees the same samples."""

from __future__ import annotations

# More accumulation than any run needs; it bounds the search for a split.
MOST_ACCUMULATION = 100_000


def largest_split(batch: int, total: int, most: int) -> int | None:
    """Return the largest batch below this one that divides the total and is at most `most`.

    If none is that small, return the smallest that divides it; None: there is no smaller batch at all.
    """
    smallest = None
    for accumulation in range(total // batch + 1, min(total, MOST_ACCUMULATION) + 1):
        if total % accumulation == 0:
            smallest = total // accumulation
            if smallest <= most:
                break
    return smallest
