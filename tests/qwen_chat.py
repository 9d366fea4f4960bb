"""Small tokenizers with chat templates in the manners of Qwen, and some that do not append.

The vocabulary is a byte-level BPE trained on a few lines, split by Qwen's pattern, so that
punctuation and line breaks merge as they do in the real one. As there, chat and tool markers are
added tokens, and those of tools and reasoning are not special ones.
"""

from functools import cache

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LINES = (
    "user\n",
    "assistant\n",
    "Lisbon is the capital of Portugal.\n",
    "- Portugal: a country in Europe; its capital is Lisbon.\n\n",
    "<function=search>\n<parameter=query>\ncapital of Portugal\n</parameter>\n</function>\n",
    '{"name": "search", "arguments": {"query": "capital of Portugal"}}\n',
    "Answer: Lisbon.\n",
)

_TOOLS = """
{%- if tools %}{{- '\\n\\n# Tools\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' ~ (tool | tojson) }}{%- endfor %}
{{- '\\n</tools>' }}{%- endif %}"""
_OPENING = (
    "{{- '<|im_start|>system\\n' ~ messages[0].content | trim }}"
    + _TOOLS
    + "{{- '<|im_end|>\\n' }}"
)
_TOOL = """
{%- if loop.previtem is not defined or loop.previtem.role != 'tool' %}
    {{- '<|im_start|>user' }}
{%- endif %}
{{- '\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}"""
_EMPTY_THINK = "<think>\\n\\n</think>\\n\\n"

QWEN35 = f"""{_OPENING}
{{%- set last = namespace(query=0) %}}
{{%- for message in messages %}}
    {{%- if message.role == 'user' %}}{{%- set last.query = loop.index0 %}}{{%- endif %}}
{{%- endfor %}}
{{%- for message in messages[1:] %}}
    {{%- if message.role == 'user' %}}
        {{{{- '<|im_start|>user\\n' ~ message.content | trim ~ '<|im_end|>\\n' }}}}
    {{%- elif message.role == 'assistant' %}}
        {{%- set content = message.content | trim %}}
        {{{{- '<|im_start|>assistant\\n' }}}}
        {{%- if loop.index > last.query %}}{{{{- '{_EMPTY_THINK}' }}}}{{%- endif %}}
        {{{{- content ~ '<|im_end|>\\n' }}}}
    {{%- elif message.role == 'tool' %}}{_TOOL}
    {{%- endif %}}
{{%- endfor %}}
{{%- if add_generation_prompt %}}
    {{{{- '<|im_start|>assistant\\n' }}}}
    {{%- if enable_thinking is defined and enable_thinking is false %}}
        {{{{- '{_EMPTY_THINK}' }}}}
    {{%- else %}}
        {{{{- '<think>\\n' }}}}
    {{%- endif %}}
{{%- endif %}}"""
"""Trims contents; the turns after the last question carry a (here always empty) think block."""

QWEN3 = QWEN35.replace("loop.index > last.query", "loop.last").replace(
    "{{- '<think>\\n' }}", "{{- '' }}"
)
"""Drops the think block of a turn as soon as anything follows it."""

QWEN25 = f"""{_OPENING}
{{%- for message in messages[1:] %}}
    {{%- if message.role == 'tool' %}}{_TOOL}
    {{%- else %}}
        {{{{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}}}
    {{%- endif %}}
{{%- endfor %}}
{{%- if add_generation_prompt %}}{{{{- '<|im_start|>assistant\\n' }}}}{{%- endif %}}"""
"""Knows nothing of thinking."""

FORGETS_HISTORY = QWEN25.replace("in messages[1:]", "in messages[-3:]")
"""Leaves earlier messages out as later ones arrive."""
NUMBERS_TURNS = QWEN25.replace("'\\n<tool_response>\\n'", "'\\n<tool_response>\\n' ~ loop.index")
"""Frames every result differently."""
ENDS_IN_PLAIN_TEXT = QWEN25.replace(
    "message.content ~ '<|im_end|>\\n' }}", "message.content ~ '\\n\\n' }}"
)
"""Closes a turn with nothing that a sampler could stop at."""
REFUSES_TOOLS = QWEN25.replace("message.role == 'tool' %}", "raise_exception('no tools') %}")
"""Raises on the conversation of a search."""
HIDES_RESULTS = QWEN25.replace("message.content ~ '\\n</tool_response>'", "'\\n</tool_response>'")
"""Shows no result."""
LATE_END = QWEN25.replace(
    "message.content ~ '<|im_end|>\\n' }}",
    "message.content ~ ('<|im_end|>\\n' if loop.last else '<|im_end|>\\n\\n') }}",
).replace("'<|im_end|>\\n\\n')", "'\\n<|im_end|>\\n')")
"""Ends a turn differently once something follows it."""


@cache
def tokenizer(chat_template: str, tool_markers_added: bool = True) -> PreTrainedTokenizerFast:
    """A tokenizer with this template; without `tool_markers_added` the markers of tools and
    reasoning are plain text, as those of tool results are in Qwen2.5."""
    model = Tokenizer(BPE())
    model.normalizer = normalizers.NFC()  # pyright: ignore[reportAttributeAccessIssue]
    model.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [
            pre_tokenizers.Split(Regex(_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    model.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    model.train_from_iterator(
        _LINES * 3, BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    model.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    if tool_markers_added:
        model.add_tokens([AddedToken(text, special=False, normalized=False) for text in ADDED])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=model, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = chat_template
    fast.name_or_path = "qwen-in-small"
    return fast
