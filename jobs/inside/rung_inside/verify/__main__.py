"""Runs `python -m rung_inside.verify`."""

from __future__ import annotations

import sys

from rung_inside.verify.examine import main

sys.exit(main(sys.argv[1:]))
