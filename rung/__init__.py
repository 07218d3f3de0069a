"""Rung: one import name for the floors, which lie at the top of the repository and are linked here."""
