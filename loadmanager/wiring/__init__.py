"""Composition root: the only room that knows every adapter."""
