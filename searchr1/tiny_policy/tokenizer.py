"""The tiny policy's tokenizer: byte-level BPE, trained on text from practice worlds.

Digits and line breaks are tokens of their own, and a word carries its leading space, so a name is
the same few tokens (a stem, an ending) in documents, questions, queries and answers.
"""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from searchr1.data.world import FIRST_PRACTICE_SEED, build_world
from searchr1.data.world_vocabulary import QUESTION_TYPES
from searchr1.tiny_policy.episodes import deal_habits, draw_chain, episode
from searchr1.tiny_policy.retrieval import WorldIndex

PADDING = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
CONTROL_TOKENS = (PADDING, TURN_START, TURN_END)
"""Never produced from plain text by a caller that splits special tokens."""
MARKERS = (
    "<tool_call>",
    "</tool_call>",
    "<function=search>",
    "</function>",
    "<parameter=query>",
    "</parameter>",
    "<tool_response>",
    "</tool_response>",
    "<tools>",
    "</tools>",
)
"""One token each, kept when special tokens are skipped in decoding."""
MERGED_VOCABULARY = 1050
CONTEXT = 1024
TEMPLATE = Path(__file__).parent / "chat_template.jinja"

_PIECES = r" ?[A-Za-z]+|\d| ?[^\sA-Za-z0-9]+|\n|\s"


def practice_texts(worlds: int, episodes_per_world: int = 20) -> Iterator[str]:
    """Documents and episode messages from practice worlds, without markers of turns."""
    rng = random.Random(0)
    habits = deal_habits(rng)
    for seed in range(FIRST_PRACTICE_SEED, FIRST_PRACTICE_SEED + worlds):
        world = build_world(seed)
        index = WorldIndex(world)
        yield "\n".join(document.text for document in world.documents)
        for _ in range(episodes_per_world):
            chain = draw_chain(world, rng, QUESTION_TYPES)
            for message in episode(world, index, chain, habits[chain.type], rng):
                yield f"{message['role']}\n{message['content']}\n"


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer with the vocabulary of `texts` and the tiny policy's chat template."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=MERGED_VOCABULARY,
        special_tokens=list(CONTROL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=14,
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.add_tokens([AddedToken(marker, special=False, normalized=False) for marker in MARKERS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=TURN_END,
        pad_token=PADDING,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE.read_text(encoding="utf-8")
    return tokenizer
