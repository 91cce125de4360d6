"""Deterministic unit vectors for token ids; texts with the same words point the same way. Pure.

Each token adds to a few places (feature hashing), a little noise from the whole text fills the rest.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from random import Random

DIMENSIONS = 1536
_PLACES_PER_TOKEN = 8
_NOISE = 0.02


def unit_vector(token_ids: Sequence[int], dimensions: int = DIMENSIONS) -> list[float]:
    """The first `dimensions` places of the text's vector, scaled to length 1."""
    digest = blake2b(array("I", token_ids), digest_size=8).digest()
    noise = Random(int.from_bytes(digest, "little")).random
    vector = [(noise() - 0.5) * _NOISE for _ in range(DIMENSIONS)]
    for token_id in token_ids:
        for place, sign in _features(token_id):
            vector[place] += sign
    del vector[dimensions:]
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector]


def similarity(a: Sequence[float], b: Sequence[float]) -> float:
    """In [0, 1]: 1 for the same direction."""
    cosine = sum(x * y for x, y in zip(a, b, strict=True))
    return min(1.0, max(0.0, (1 + cosine) / 2))


@lru_cache(maxsize=65_536)
def _features(token_id: int) -> tuple[tuple[int, float], ...]:
    digest = blake2b(token_id.to_bytes(4, "little"), digest_size=_PLACES_PER_TOKEN * 4).digest()
    words = array("I", digest)
    return tuple((word % DIMENSIONS, 1.0 if word >> 31 else -1.0) for word in words)
