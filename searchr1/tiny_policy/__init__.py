"""The tiny policy: a causal language model of 2 MB that can search the built-in world, badly."""

from pathlib import Path

MODEL_NAME = "tiny-search-world"
"""Its name as a base model."""
WEIGHTS = Path(__file__).parent / "weights"
"""The folder with weights, tokenizer and chat template, as transformers loads it."""
SYSTEM_PROMPT = (
    "Answer the question. Use the search tool to look up facts. "
    "End with one line: Answer: <short answer>"
)
"""The only system prompt that it knows."""
