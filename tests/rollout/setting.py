"""A rollout with a scripted policy and a scripted search engine."""

from transformers import AutoTokenizer

from searchr1.chat import ChatFormat
from searchr1.rollout import RolloutContext, RolloutLimits, rollout_group
from searchr1.tiny_policy import WEIGHTS
from searchr1.trajectory import Question
from tests import qwen_chat
from tests.scripted import Line, ScriptedBackend, ScriptedSampler, found

TINY = AutoTokenizer.from_pretrained(WEIGHTS)
QWEN = qwen_chat.tokenizer(qwen_chat.QWEN35)
CHATS = {id(TINY): ChatFormat(TINY, "Search, then answer."), id(QWEN): ChatFormat(QWEN, "Search.")}
END, LINE_BREAK = CHATS[id(TINY)].closing
QUESTION = Question("q1", "What is the capital of Portugal?", ("Lisbon",), "nq")


def call(query: str) -> str:
    return (
        "<tool_call>\n<function=search>\n<parameter=query>\n"
        f"{query}\n</parameter>\n</function>\n</tool_call>"
    )


def setting(
    *scripts: list[Line],
    answer=lambda query: found(f"about {query}"),
    tokenizer=TINY,
    ending=(END,),
    seed: int | None = None,
    **limits: int,
) -> tuple[ScriptedSampler, ScriptedBackend, RolloutContext]:
    sampler = ScriptedSampler(tokenizer, scripts, ending)
    backend = ScriptedBackend(answer)
    context = RolloutContext(sampler, backend, CHATS[id(tokenizer)], RolloutLimits(**limits), seed)
    return sampler, backend, context


async def only(context: RolloutContext):
    """The single trajectory of a group of one."""
    group = await rollout_group(QUESTION, 1, context)
    return group.trajectories[0]
