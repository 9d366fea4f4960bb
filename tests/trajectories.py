"""Small hand-made trajectories for tests."""

from searchr1.trajectory import (
    Group,
    Question,
    SearchItem,
    SearchRecord,
    StopReason,
    Trajectory,
    TurnRecord,
)

QUESTION = Question("world-1", "Who wrote The Pale Clock?", ("Venla Marsen",), "one_hop")


def search(ok: bool = True, error: str = "", seconds: float = 0.1, cached: bool = False):
    items = (SearchItem("The Pale Clock", "The Pale Clock is a novel."),) if ok else ()
    return SearchRecord(
        turn=0,
        query="author The Pale Clock",
        ok=ok,
        error=error,
        items=items,
        observation="- …",
        seconds=seconds,
        cached=cached,
        cost=0.0,
        requests=int(not cached),
        rate_limited=int(error == "rate_limited"),
        timeouts=int(error == "timeout"),
    )


def trajectory(
    index: int = 0,
    reward: float = 1.0,
    stop_reason: StopReason = StopReason.ANSWERED,
    searches: tuple[SearchRecord, ...] = (),
    question: Question = QUESTION,
) -> Trajectory:
    """Two prompt tokens, then two drawn ones."""
    return Trajectory(
        question=question,
        index=index,
        tokens=(1, 2, 3, 4),
        loss_mask=(False, False, True, True),
        logprobs=(0.0, 0.0, -0.5, -0.25),
        turns=(TurnRecord(2, 4, "Answer: Venla Marsen", "answer", 0.5),),
        searches=searches,
        stop_reason=stop_reason,
        error="",
        final_text="Answer: Venla Marsen",
        answer="Venla Marsen",
        reward=reward,
        valid_format=reward >= 0,
        em=reward == 1.0,
        em_squad=reward == 1.0,
        f1=float(reward == 1.0),
        cover_em=reward == 1.0,
        seconds=1.5,
    )


def group(*rewards: float, question: Question = QUESTION) -> Group:
    """One trajectory a reward."""
    return Group(
        question, tuple(trajectory(i, r, question=question) for i, r in enumerate(rewards))
    )
