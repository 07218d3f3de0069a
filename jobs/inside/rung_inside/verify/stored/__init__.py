"""What all readers share: verdicts, files that are mapped into memory, and tensors that stay in their file."""

from __future__ import annotations
