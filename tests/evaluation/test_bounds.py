"""The bound of calls and tokens that ends a run: what may begin, what waits, what is reached."""

import asyncio

import pytest

from selfcorrect_rag.evaluation.costs import Bound, Spent

ONE = Spent(1, 10)


async def is_waiting(task: "asyncio.Task[bool]") -> bool:
    """Whether a question still waits after all that could wake it has run."""
    for _ in range(10):
        await asyncio.sleep(0)
    return not task.done()


@pytest.mark.parametrize(("calls", "tokens"), [(2, None), (None, 20)])
async def test_questions_begin_while_there_is_enough(calls: int | None, tokens: int | None) -> None:
    bound = Bound(calls, tokens)
    for _ in range(2):
        assert await bound.begin(ONE)
        await bound.end(ONE, ONE)
        assert bound.reached == ""
    assert not await bound.begin(ONE)
    assert bound.reached == ("max_calls" if calls else "max_tokens")


@pytest.mark.parametrize(
    ("calls", "tokens", "reached"),
    [(1, None, "max_calls"), (None, 10, "max_tokens"), (1, 10, "max_calls"), (None, None, "")],
)
async def test_the_bound_that_is_reached_is_named(
    calls: int | None, tokens: int | None, reached: str
) -> None:
    bound = Bound(calls, tokens)
    assert await bound.begin(ONE)
    await bound.end(ONE, ONE)
    assert await bound.begin(ONE) is (reached == "")
    assert bound.reached == reached


async def test_what_is_in_flight_counts_and_a_question_waits_for_it() -> None:
    bound = Bound(3, None)
    two = Spent(2, 20)
    assert await bound.begin(two)
    assert await bound.begin(ONE)
    waiting = asyncio.create_task(bound.begin(ONE))
    assert await is_waiting(waiting)
    await bound.end(ONE, ONE)
    assert await is_waiting(waiting), "3 of 3 are still spent or in flight"
    await bound.end(two, ONE)  # it cost less than was reserved for it
    assert await asyncio.wait_for(waiting, 5)
    assert bound.reached == ""


async def test_of_those_that_wait_all_end_once_it_is_reached() -> None:
    bound = Bound(2, None)
    assert await bound.begin(ONE)
    assert await bound.begin(ONE)
    waiting = [asyncio.create_task(bound.begin(ONE)) for _ in range(2)]
    assert all([await is_waiting(task) for task in waiting])
    await bound.end(ONE, Spent(2, 0))
    assert all([await is_waiting(task) for task in waiting]), "one is in flight"
    await bound.end(ONE, Spent())
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [False, False]
    assert bound.reached == "max_calls"
    assert not await asyncio.wait_for(bound.begin(Spent()), 5), "nothing begins any more"


async def test_an_estimate_alone_ends_no_run() -> None:
    bound = Bound(1, None)
    large = Spent(5, 0)
    assert await bound.begin(large)
    waiting = asyncio.create_task(bound.begin(large))
    assert await is_waiting(waiting), "but only one is asked at a time"
    await bound.end(large, Spent(0, 1))
    assert not await asyncio.wait_for(waiting, 5), "what is spent is known by now"
    assert bound.reached == "max_calls"


async def test_a_bound_may_be_used_up_and_rounding_does_not_count() -> None:
    bound = Bound(1, None)
    tenth = Spent(0.1, 0)
    for _ in range(10):
        assert await bound.begin(tenth)
        await bound.end(tenth, tenth)
    assert not await bound.begin(Spent(0.01, 0))
