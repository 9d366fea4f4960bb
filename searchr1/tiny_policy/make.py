"""Make the tiny policy from nothing: `python -m searchr1.tiny_policy.make --output FOLDER`.

Tokenizer, then four stages of supervised training, then export; about half an hour on two idle
cores. Finished stages are kept under FOLDER/stages, and a run that was interrupted goes on after
the last finished one. FOLDER itself then is a model that transformers loads.

Order and rates matter. Copying comes first and its rate is decayed to nearly nothing until perfect
episodes succeed on names never seen: on a base that copies badly, reinforcement learning learns
the form of the answer and stops searching. Habits come last, short and at a low rate, because a
higher one damages the skills underneath.
"""

import argparse
import json
import random
import shutil
import time
from pathlib import Path

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from searchr1.tiny_policy.episodes import deal_habits
from searchr1.tiny_policy.examples import Mixture
from searchr1.tiny_policy.measure import measure
from searchr1.tiny_policy.model import load_model, temper
from searchr1.tiny_policy.supervised import Stage, run_stage
from searchr1.tiny_policy.tokenizer import practice_texts, train_tokenizer

TOKENIZER_WORLDS = 150
HABITS_SEED = 0
TEMPER_FACTOR = 1.5

STAGES: tuple[Stage, ...] = (
    Stage(
        name="reading",
        number=1,
        steps=200,
        batch_size=48,
        mixture=Mixture(fact_lists=0.05, system_prompt=0.0, single_result=1.0),
        matrix_rate=0.02,
        other_rate=4e-3,
    ),
    Stage(
        name="searching",
        number=2,
        steps=336,
        batch_size=48,
        mixture=Mixture(fact_lists=0.25, system_prompt=0.35, single_result=0.1),
        matrix_rate=0.02,
        other_rate=4e-3,
    ),
    Stage(
        name="settling",
        number=3,
        steps=544,
        batch_size=48,
        mixture=Mixture(fact_lists=0.25, system_prompt=0.45, single_result=0.2),
        matrix_rate=0.02,
        other_rate=4e-3,
        rate_end=0.02,
    ),
    Stage(
        name="habits",
        number=4,
        steps=150,
        batch_size=32,
        mixture=Mixture(
            fact_lists=0.12,
            system_prompt=0.8,
            single_result=0.0,
            habits=deal_habits(random.Random(HABITS_SEED)),
        ),
        matrix_rate=0.006,
        other_rate=1.2e-3,
        rate_end=0.02,
    ),
)


def make(output: Path, processes: int, stages: tuple[Stage, ...] = STAGES) -> None:
    """Make the tiny policy in `output`, skipping what an earlier run finished there."""
    started = time.monotonic()
    folder = output / "stages"
    tokenizer_folder = folder / "tokenizer"
    if not tokenizer_folder.exists():
        _say("tokenizer: training")
        part = tokenizer_folder.with_suffix(".part")
        train_tokenizer(practice_texts(TOKENIZER_WORLDS)).save_pretrained(part)
        part.rename(tokenizer_folder)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    before: Path | None = None
    for stage in stages:
        after = folder / stage.name
        if after.exists():
            _say(f"{stage.name}: finished by an earlier run")
        else:
            run_stage(stage, tokenizer_folder, before, after, processes, report=_say)
            _say(f"{stage.name}: {measure(load_model(after), tokenizer)}")
        before = after
    assert before is not None
    export(before, tokenizer_folder, output)
    _say(f"done after {time.monotonic() - started:.0f} s: the tiny policy is in {output}")


def export(trained: Path, tokenizer_folder: Path, output: Path) -> None:
    """Write the model in `trained`, tempered and in half precision, with its tokenizer."""
    model = load_model(trained)
    temper(model, TEMPER_FACTOR)
    model.to(torch.float16).save_pretrained(output)  # type: ignore[arg-type]
    for file in tokenizer_folder.iterdir():
        shutil.copy(file, output)
    # Only what describes the model: not how or from where this process loaded it.
    for name in ("tokenizer_config.json", "generation_config.json"):
        settings = json.loads((output / name).read_text(encoding="utf-8"))
        kept = {
            key: value
            for key, value in settings.items()
            if key not in ("is_local", "local_files_only", "name_or_path", "_from_model_config")
        }
        (output / name).write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m searchr1.tiny_policy.make",
        description="Make the tiny policy from nothing, in about half an hour on two idle cores. "
        "An interrupted run goes on after its last finished stage.",
    )
    parser.add_argument(
        "--output", type=Path, required=True, help="folder for the model and its stages"
    )
    parser.add_argument(
        "--processes",
        type=int,
        choices=(1, 2),
        default=2,
        help="processes that share every batch, one core each (default: 2)",
    )
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    make(options.output, options.processes)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
