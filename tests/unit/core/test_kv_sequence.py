from __future__ import annotations

import subprocess
import sys

from mocker_core.hashing import block_identity
from mocker_core.kv.sequence import HashedSequence, SeededOutput
from mocker_core.request import BlockIdentity
from tests.shared_cases import CHECKOUT_DIR


def test_prompt_identities_are_a_chain_over_full_blocks() -> None:
    first = block_identity(None, (1, 2))
    second = block_identity(first, (3, 4))
    assert HashedSequence((1, 2, 3, 4, 5), (), 2).prompt_identities() == [first, second]


def test_block_that_starts_in_the_prompt_ends_in_the_output() -> None:
    sequence = HashedSequence((1, 2, 3, 4, 5), (6, 7, 8), 4)
    parent = sequence.prompt_identities()[-1]
    assert list(sequence.block_tokens(1)) == [5, 6, 7, 8]
    assert sequence.extend(parent, 1) == block_identity(parent, (5, 6, 7, 8))


def test_block_of_generated_tokens_alone() -> None:
    sequence = HashedSequence((1, 2), range(10, 20), 2)
    assert [list(sequence.block_tokens(index)) for index in (0, 1, 2, 5)] == [
        [1, 2],
        [10, 11],
        [12, 13],
        [18, 19],
    ]


def test_answer_sent_back_as_a_prompt_hits_the_generated_blocks() -> None:
    answered = HashedSequence((1, 2, 3), (4, 5, 6), 2)
    identities: list[BlockIdentity] = answered.prompt_identities()
    for index in (1, 2):
        identities.append(answered.extend(identities[-1], index))
    assert HashedSequence((1, 2, 3, 4, 5, 6, 7), (), 2).prompt_identities() == identities


def test_seeded_output_depends_on_seed_and_position_only_and_has_uint32_ids() -> None:
    output = SeededOutput(7, 100)
    assert list(output) == list(SeededOutput(7, 50)) + [output[i] for i in range(50, 100)]
    assert list(output) != list(SeededOutput(8, 100))
    assert len(set(output)) == 100
    assert all(0 <= token < 1 << 32 for token in output)


def test_seeded_output_is_the_same_in_another_process() -> None:
    code = "from mocker_core.kv.sequence import SeededOutput; print(SeededOutput(7, 3)[2])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT_DIR, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == SeededOutput(7, 3)[2]
