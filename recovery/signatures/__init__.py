"""Lists all signatures, in the order in which they are tried.

The order matters when a message matches two rows: gradients before losses, memory before CUDA, CUDA before comm.
"""

from __future__ import annotations

from rung.recovery.signatures import (
    advice,
    bad_numbers,
    comm,
    cuda,
    infra,
    memory,
    numeric,
    scaler,
    services,
    teardown,
)
from rung.recovery.signatures.signature import Role, Signature, Window

SIGNATURES: tuple[Signature, ...] = (
    *scaler.ROWS,
    *numeric.ROWS,
    *bad_numbers.ROWS,
    *memory.ROWS,
    *cuda.ROWS,
    *comm.ROWS,
    *infra.ROWS,
    *services.ROWS,
)
BACKOFFS: tuple[Signature, ...] = scaler.BACKOFFS
GUARDS: tuple[Signature, ...] = (*teardown.ROWS, *advice.ROWS)
# A log without any of these texts, in lower case, has no message that Rung knows.
ANCHORS: tuple[str, ...] = tuple(dict.fromkeys(anchor for row in (*SIGNATURES, *BACKOFFS) for anchor in row.anchors))

__all__ = ["ANCHORS", "BACKOFFS", "GUARDS", "SIGNATURES", "Role", "Signature", "Window"]
