"""Randomness: one seed per run, one independent stream per named subsystem."""

from __future__ import annotations

from hashlib import blake2b
from random import Random


def stream_seed(seed: int, *names: str | int) -> int:
    """A 64-bit seed for the stream `names` of the run `seed`; equal inputs give equal seeds everywhere."""
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def stream(seed: int, *names: str | int) -> Random:
    """A `random.Random` of its own for the named subsystem."""
    return Random(stream_seed(seed, *names))
