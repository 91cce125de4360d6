from __future__ import annotations

from tests.factories import make_core, make_request


def test_head_is_admitted_as_soon_as_an_eviction_makes_its_hit_an_active_copy() -> None:
    core = make_core(num_gpu_blocks=6, block_size=4)
    block = (1, 2, 3, 4)
    core.receive(make_request("first-copy", tokens=block, output=1))
    core.receive(make_request("second-copy", tokens=block, output=20))
    core.receive(make_request("big", prompt=8, output=5))
    now_ms = 0.0
    for _ in range(4):
        now_ms = core.execute_pass(now_ms).end_ms
    core.receive(make_request("head", tokens=(*block, *range(50, 60)), output=1))
    blocked = core.execute_pass(
        now_ms
    )  # big ends here; the copy cached first is inactive, so the hit saves nothing
    assert blocked.admissions == []
    admitted = core.execute_pass(
        blocked.end_ms
    )  # second-copy grows and evicts it: its own copy, active, is left
    assert [(a.request_id, a.reused_input_tokens) for a in admitted.admissions] == [("head", 4)]
