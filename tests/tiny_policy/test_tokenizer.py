"""The tokenizer: lossless, names in few pieces that are the same everywhere, and a chat template
that only appends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from searchr1.data.world import DEMO_SEED, Kind, build_world
from searchr1.protocol import SEARCH_TOOL as PROTOCOL_TOOL
from searchr1.tiny_policy import SYSTEM_PROMPT, WEIGHTS
from searchr1.tiny_policy.episodes import SEARCH_TOOL, call
from searchr1.tiny_policy.tokenizer import MARKERS, practice_texts, train_tokenizer

TOKENIZER = AutoTokenizer.from_pretrained(WEIGHTS)

HISTORY = [
    {"role": "system", "content": SYSTEM_PROMPT},
    {"role": "user", "content": "Where was Marla Venard born?"},
    {"role": "assistant", "content": call("birthplace Marla Venard")},
    {"role": "tool", "content": "- Marla Venard is a poet born in Torwick.\n- no more"},
    {"role": "assistant", "content": call("birthplace Marla")},
    {"role": "tool", "content": "- no results"},
    {"role": "assistant", "content": "Answer: Torwick"},
]


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


@given(st.text(max_size=200))
def test_any_text_survives_encoding(text: str) -> None:
    assert TOKENIZER.decode(encode(TOKENIZER, text)) == text


def test_every_document_survives_encoding(tokenizer: PreTrainedTokenizerFast) -> None:
    for document in build_world(DEMO_SEED).documents:
        assert tokenizer.decode(encode(tokenizer, document.text)) == document.text


def test_unseen_names_are_two_pieces_a_word(tokenizer: PreTrainedTokenizerFast) -> None:
    entities = build_world(DEMO_SEED).entities
    words = [
        word
        for kind in (Kind.PERSON, Kind.TOWN, Kind.RIVER, Kind.COUNTY, Kind.LAKE)
        for name in entities[kind]
        for word in name.split()
    ]
    two = [word for word in words if len(encode(tokenizer, f" {word}")) == 2]
    assert len(two) > 0.95 * len(words)


def test_a_name_is_the_same_tokens_in_question_document_query_and_answer(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    name = encode(tokenizer, " Marla Venard")
    for text in (
        "Where was Marla Venard born?",
        "It was written by Marla Venard in 1784.",
        call("birthplace Marla Venard"),
        "Answer: Marla Venard",
    ):
        tokens = encode(tokenizer, text)
        places = range(len(tokens) - len(name) + 1)
        assert any(tokens[at : at + len(name)] == name for at in places), text


def test_digits_line_breaks_and_markers_are_single_tokens(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    assert len(encode(tokenizer, "1784")) == 4
    assert len(encode(tokenizer, "a\n\nb")) == 4
    for marker in (*MARKERS, "<|im_start|>", "<|im_end|>", "<|endoftext|>"):
        assert len(encode(tokenizer, f"a{marker}b")) == 3, marker


def test_markers_of_calls_are_kept_when_special_tokens_are_skipped(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    tokens = encode(tokenizer, f"{call('river Torwick')}<|im_end|>")
    assert tokenizer.decode(tokens, skip_special_tokens=True) == call("river Torwick")


def render(tokenizer: PreTrainedTokenizerFast, messages: list[dict], generate: bool) -> str:
    text = tokenizer.apply_chat_template(
        messages, tools=[SEARCH_TOOL], tokenize=False, add_generation_prompt=generate
    )
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("length", range(2, len(HISTORY)))
def test_the_rendering_of_a_history_is_a_prefix_of_what_follows(
    tokenizer: PreTrainedTokenizerFast, length: int
) -> None:
    whole = render(tokenizer, HISTORY, generate=False)
    next_is_generated = HISTORY[length]["role"] == "assistant"
    part = render(tokenizer, HISTORY[:length], generate=next_is_generated)
    assert whole.startswith(part)
    assert len(part) < len(whole)
    # In tokens, too: nothing merges across the border.
    tokens = encode(tokenizer, part)
    assert encode(tokenizer, whole)[: len(tokens)] == tokens


def test_a_structured_call_renders_as_the_policy_writes_it(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    function = {"name": "search", "arguments": {"query": "birthplace Marla Venard"}}
    structured = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": function}],
    }
    messages = [*HISTORY[:2], structured, *HISTORY[3:]]
    assert render(tokenizer, messages, False) == render(tokenizer, HISTORY, False)


def test_the_prompt_is_the_same_for_the_protocols_own_search_tool(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    prompt = tokenizer.apply_chat_template(
        HISTORY[:2], tools=[PROTOCOL_TOOL], tokenize=False, add_generation_prompt=True
    )
    assert prompt == render(tokenizer, HISTORY[:2], generate=True)


def test_training_a_tokenizer_gives_a_smaller_like_of_the_packaged_one() -> None:
    trained = train_tokenizer(practice_texts(worlds=3, episodes_per_world=5))
    assert encode(trained, "<tool_call>\n")[1:] == encode(trained, "\n")
    assert trained.eos_token == "<|im_end|>"
    text = render(trained, HISTORY, generate=False)
    assert trained.decode(encode(trained, text)) == text
