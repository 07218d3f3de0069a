"""Verifies checkpoints of every kind in the environment of the job."""

from __future__ import annotations
