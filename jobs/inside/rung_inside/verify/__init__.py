"""Owns looking into checkpoints of every kind, inside the job's own environment: a file for each kind."""

from __future__ import annotations
