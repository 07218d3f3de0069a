"""Reads pickles without running them: opcodes, a machine that builds only data, and the names it accepts."""

from __future__ import annotations
