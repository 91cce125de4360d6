"""Block identities of requests that have real token ids (the live server, handoffs, tests)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mocker_core.hashing import block_identity, salted_root
from mocker_core.request import BlockIdentity


class HashedSequence:
    """A `BlockSequence` over prompt ids and planned output ids; it shares blocks within its salt only."""

    __slots__ = ("_block_size", "_output", "_prompt", "_root")

    def __init__(
        self, prompt: Sequence[int], output: Sequence[int], block_size: int, salt: bytes = b""
    ) -> None:
        self._prompt = prompt
        self._output = output
        self._block_size = block_size
        self._root = salted_root(salt)

    def prompt_identities(self) -> list[BlockIdentity]:
        size = self._block_size
        prompt = self._prompt
        identities: list[BlockIdentity] = []
        parent = self._root
        for start in range(0, len(prompt) - size + 1, size):
            parent = block_identity(parent, prompt[start : start + size])
            identities.append(parent)
        return identities

    def extend(self, parent: BlockIdentity | None, index: int) -> BlockIdentity:
        return block_identity(self._root if parent is None else parent, self.block_tokens(index))

    def block_tokens(self, index: int) -> Sequence[int]:
        start = index * self._block_size
        end = start + self._block_size
        length = len(self._prompt)
        if end <= length:
            return self._prompt[start:end]
        first, last = max(0, start - length), end - length
        output = self._output
        # Hot: once per block. Only a SeededOutput cannot be sliced.
        seeded = type(output) is SeededOutput
        made = [output[at] for at in range(first, last)] if seeded else output[first:last]
        return made if start >= length else [*self._prompt[start:length], *made]


class SeededOutput(Sequence[int]):
    """Output ids for a request that came without a plan: a fixed function of (seed, position)."""

    __slots__ = ("_length", "_seed")

    def __init__(self, seed: int, length: int) -> None:
        self._seed = seed
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        # The inherited one goes on until an IndexError, which `__getitem__` does not spend time on.
        return map(self.__getitem__, range(self._length))

    def __getitem__(self, position):  # type: ignore[no-untyped-def]  # slices are never taken of a plan
        # One round of splitmix64: well mixed, and the same in every process.
        mixed = (self._seed + position * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        return (mixed >> 32) & 0xFFFFFFFF
