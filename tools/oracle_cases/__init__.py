"""The oracle's cases, one module a room: each has `add(group)`. Run by ../oracle.py."""
