"""Moves of bundles: what they are, and when each may start."""
