"""The packaged tokenizer and a practice world, shared by the tests of the tiny policy."""

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from searchr1.tiny_policy import WEIGHTS
from searchr1.tiny_policy.examples import PracticeWorld


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    loaded = AutoTokenizer.from_pretrained(WEIGHTS)
    assert isinstance(loaded, PreTrainedTokenizerFast)
    return loaded


@pytest.fixture(scope="session")
def practice() -> PracticeWorld:
    return PracticeWorld(5000)
