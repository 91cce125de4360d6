from __future__ import annotations

import asyncio

from app.admission_gate import AdmissionGate


def test_a_burst_enters_in_order_a_few_per_turn() -> None:
    entered: list[tuple[int, int]] = []

    async def main() -> None:
        gate, turn = AdmissionGate(per_turn=3), 0

        async def visitor(number: int) -> None:
            await gate.enter()
            entered.append((turn, number))

        tasks = [asyncio.ensure_future(visitor(number)) for number in range(10)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            turn += 1

    asyncio.run(main())
    assert [number for _, number in entered] == list(range(10))
    per_turn = [sum(at == turn for at, _ in entered) for turn in {at for at, _ in entered}]
    assert max(per_turn) == 3


def test_a_lone_visitor_does_not_wait() -> None:
    async def main() -> None:
        gate = AdmissionGate(per_turn=1)
        for _ in range(3):
            entering = gate.enter()
            try:
                entering.send(None)
            except StopIteration:
                pass
            else:
                raise AssertionError("it waited")
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(main())


def test_a_visitor_that_gave_up_takes_nobodys_place() -> None:
    async def main() -> None:
        gate = AdmissionGate(per_turn=1)
        await gate.enter()
        first = asyncio.ensure_future(gate.enter())
        second = asyncio.ensure_future(gate.enter())
        # Both ask in this turn of the loop; the first one leaves before its place comes.
        asyncio.get_running_loop().call_soon(first.cancel)
        await asyncio.wait_for(second, 5)
        await asyncio.wait([first])
        assert first.cancelled() or first.done()

    asyncio.run(main())
