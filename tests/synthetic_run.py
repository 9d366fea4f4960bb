"""Run directories as a training leaves them, made up but written by the real writers.

The invented policy learns: with each step it answers more often, in better form, and searches
more on questions of several hops. Everything follows from a seed.
"""

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from searchr1.config import digest
from searchr1.files import write_text
from searchr1.runs import Run, StepRecord
from searchr1.trajectory import (
    Question,
    SearchItem,
    SearchRecord,
    StopReason,
    Trajectory,
    TurnRecord,
)
from searchr1.trajectory_store import write_trajectories

SOURCES = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
MULTI_HOP = frozenset(SOURCES[3:])
ENVIRONMENT = {"search_backend": "local", "results": 3, "cache": "replay"}
HOSTILE = (
    "</script><script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\"> <!-- <b>bold</b> &amp; \u2028"
)
"""Text of a search result that tries to become part of the page."""


class ByteTokenizer:
    """A token is a byte of UTF-8, so that a letter outside of ASCII takes several tokens."""

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`."""
        return list(text.encode())

    def decode(self, token_ids: Sequence[int], **_: object) -> str:
        """Text of token ids; an incomplete letter becomes the replacement character."""
        return bytes(token_ids).decode(errors="replace")


@dataclass(frozen=True)
class Skill:
    """How good the invented policy is."""

    right: float
    form: float
    searches: float

    @classmethod
    def at(cls, progress: float) -> "Skill":
        """From the base (0) to the end of training (1)."""
        return cls(0.3 + 0.35 * progress, 0.7 + 0.28 * progress, 1.1 + 0.9 * progress)


def make_questions(count: int, prefix: str = "q", extra: str = "") -> list[Question]:
    """`count` questions, their sources in turn; `extra` is put into every text of theirs."""
    return [
        Question(
            question_id=f"{prefix}-{number:05d}{extra}",
            question=f"Which town is the birthplace of the writer of book {number}?{extra}",
            answers=(f"Tövn {number}{extra}", f"Town {number}"),
            source=SOURCES[number % len(SOURCES)] + extra,
        )
        for number in range(count)
    ]


def make_trajectory(
    question: Question,
    index: int,
    skill: Skill,
    chance: random.Random,
    *,
    search_errors: float = 0.02,
    hostile: bool = False,
) -> Trajectory:
    """One invented trajectory, its tokens, mask and records consistent."""
    hops = 2 if question.source in MULTI_HOP else 1
    wanted = max(0, min(4, round(chance.gauss(skill.searches * hops / 1.5, 0.7))))
    tokenizer = ByteTokenizer()
    tokens: list[int] = tokenizer.encode(f"<|user|>{question.question}<|assistant|>")
    mask = [False] * len(tokens)
    turns: list[TurnRecord] = []
    searches: list[SearchRecord] = []

    def say(text: str, kind: str) -> None:
        ids = tokenizer.encode(text)
        turns.append(
            TurnRecord(len(tokens), len(tokens) + len(ids), text, kind, chance.uniform(0.2, 2.0))
        )
        tokens.extend(ids)
        mask.extend([True] * len(ids))

    stop = StopReason.ANSWERED
    for number in range(wanted):
        query = (
            f"writer of book {question.question_id}"
            if number == 0 or chance.random() < 0.1
            else f"birthplace of writer {number} {question.question_id}"
        )
        say(
            f'<tool_call>{{"name": "search", "arguments": {{"query": "{query}"}}}}</tool_call>',
            "call",
        )
        failed = chance.random() < search_errors
        found = not failed and number == hops - 1 and chance.random() < 0.8
        title = f"Page {number} of {question.question_id}"
        text = f"The writer was born in {question.answers[0]}." if found else "It is a book."
        if hostile:
            text += HOSTILE
            title += HOSTILE
        observation = "" if failed else f"[1] {title}\n{text}\n[2] Other page\nNothing here."
        url = "javascript:document.title='owned'" if hostile else f"https://example.org/{number}"
        searches.append(
            SearchRecord(
                turn=len(turns) - 1,
                query=query,
                ok=not failed,
                error=chance.choice(["timeout", "rate_limited"]) if failed else "",
                items=()
                if failed
                else (
                    SearchItem(title, text, url),
                    SearchItem("Other page", "Nothing here.", "https://example.org/other"),
                ),
                observation=observation,
                seconds=chance.uniform(0.1, 1.5) if chance.random() > 0.02 else 20.0,
                cached=chance.random() < 0.3,
                cost=0.001,
            )
        )
        if failed:
            stop = StopReason.ENVIRONMENT_ERROR
            break
        shown = tokenizer.encode(f"<|tool|>{observation}<|assistant|>")
        tokens.extend(shown)
        mask.extend([False] * len(shown))

    em = formed = False
    answer = None
    if stop.valid:
        easier = 0.1 if hops == 1 else -0.1
        formed = chance.random() < skill.form
        em = formed and chance.random() < skill.right + easier + (0.1 if wanted >= hops else -0.15)
        answer = (question.answers[0] if em else "Nowhere") if formed else None
        say(f"Answer: {answer}" if formed else f"It may be {question.answers[0]}.", "answer")
        stop = StopReason.ANSWERED if formed else StopReason.NO_ANSWER
    logprobs = [round(-chance.expovariate(4.0), 4) if drawn else 0.0 for drawn in mask]
    return Trajectory(
        question=question,
        index=index,
        tokens=tuple(tokens),
        loss_mask=tuple(mask),
        logprobs=tuple(logprobs),
        turns=tuple(turns),
        searches=tuple(searches),
        stop_reason=stop,
        error="" if stop.valid else "a search failed: timeout",
        final_text=turns[-1].text if turns else "",
        answer=answer,
        reward=1.0 if em else (0.0 if formed else -0.1),
        valid_format=formed,
        em=em,
        em_squad=em,
        f1=1.0 if em else 0.0,
        cover_em=em,
        seconds=sum(t.seconds for t in turns) + sum(s.seconds for s in searches) + 0.1,
    )


def step_metrics(trajectories: Sequence[Trajectory], step: int) -> dict[str, float]:
    """The metrics that a training records, as far as the report reads them."""
    valid = [t for t in trajectories if t.valid] or list(trajectories)
    groups: dict[str, list[Trajectory]] = {}
    for t in valid:
        groups.setdefault(t.question.question_id, []).append(t)
    flat = [g for g in groups.values() if len({t.reward for t in g}) == 1]
    searches = [s for t in trajectories for s in t.searches]
    failed = sum(not s.ok for s in searches)

    def mean(values: list[float]) -> float:
        return sum(values) / len(values) if values else 0.0

    return {
        "reward/mean": mean([t.reward for t in valid]),
        "reward/mean_all": mean([t.reward for t in trajectories]),
        "reward/correct": mean([float(t.em) for t in valid]),
        "reward/format": mean([float(t.valid_format) for t in valid]),
        "rollout/turns": mean([float(len(t.turns)) for t in valid]),
        "rollout/search_calls": mean([float(len(t.searches)) for t in valid]),
        "rollout/trajectory_tokens": mean([float(len(t.tokens)) for t in valid]),
        "rollout/degenerate_group_rate": len(flat) / len(groups),
        "rollout/all_right_group_rate": sum(g[0].em for g in flat) / len(groups),
        "rollout/all_wrong_group_rate": sum(not g[0].em for g in flat) / len(groups),
        "rollout/environment_error_rate": 1 - len(valid) / len(trajectories),
        "search/success_rate": 1 - failed / max(len(searches), 1),
        "search/error_rate": failed / max(len(searches), 1),
        "search/latency": mean([s.seconds for s in searches]),
        "trainer/logprob_drift": 0.002 + 0.0005 * step,
        "trainer/loss_sum": -0.1,
        "rollout/mean_logprob": -0.25,
        "rollout/mean_logprob_right": -0.22,
        "time/rollout_seconds": 20.0 + step % 3,
        "time/search_seconds": 8.0,
        "time/update_seconds": 6.0,
        "time/save_seconds": 1.5,
        "time/step_seconds": 29.0 + step % 3,
        "cost/search_usd": 0.01 * step,
        "cost/train_usd": 0.02 * step,
        "cost/sample_usd": 0.005 * step,
        "cost/total_usd": 0.035 * step,
    }


def write_evaluation(
    run: Run,
    name: str,
    questions: Sequence[Question],
    skill: Skill,
    *,
    checkpoint: str,
    step: int,
    samples: int = 1,
    temperature: float = 0.0,
    environment: dict | None = None,
    forced_mixed: bool = False,
    seed: int = 0,
    hostile: bool = False,
    search_errors: float = 0.0,
) -> list[Trajectory]:
    """A finished evaluation. The same seed gives the same luck, so that only skill differs."""
    environment = environment or ENVIRONMENT
    trajectories = [
        make_trajectory(
            question,
            sample,
            skill,
            random.Random(f"{seed}/{question.question_id}/{sample}"),
            search_errors=search_errors,
            hostile=hostile,
        )
        for question in questions
        for sample in range(samples)
    ]
    ids = "\n".join(sorted(q.question_id for q in questions))
    description = {
        "evaluation": name,
        "run": run.name,
        "checkpoint": checkpoint,
        "model_path": None if checkpoint == "base" else f"trio://run/sampler_weights/{checkpoint}",
        "step": step,
        "question_set": "dev70",
        "questions_digest": hashlib.sha256(ids.encode()).hexdigest(),
        "questions": len(questions),
        "samples": samples,
        "temperature": temperature,
        "environment": environment,
        "environment_fingerprint": digest(environment),
        "settings": {"seed": seed},
        "started_at": f"2030-01-02T{step // 60:02d}:{step % 60:02d}:00+00:00",
        "finished_at": f"2030-01-02T{step // 60:02d}:{step % 60:02d}:30+00:00",
        "forced_mixed": forced_mixed,
        "search": {"search/error_rate": 0.0, "search/success_rate": 1.0},
    }
    store = run.evaluation(name, checkpoint)
    write_text(store.path.with_suffix(".json"), json.dumps(description))
    write_trajectories(store.path, trajectories)
    return trajectories


def write_step(
    run: Run,
    step: int,
    trajectories: Sequence[Trajectory],
    *,
    checkpoint: bool = False,
    metrics: dict[str, float] | None = None,
) -> None:
    """A finished step: its trajectories and its line in the ledger."""
    write_trajectories(run.trajectories(step, f"step_{step - 1}").path, trajectories)
    run.append(
        StepRecord(
            step=step,
            policy_ref=f"trio://run/weights/step_{step - 1}",
            state=f"trio://run/weights/step_{step}",
            saved=True,
            state_size=1_000_000,
            training_run="run",
            sampler_weights=f"trio://run/sampler_weights/step_{step}" if checkpoint else None,
            time=f"2030-01-01T{step // 60:02d}:{step % 60:02d}:00+00:00",
            digest="d" * 16,
            question_ids=tuple(dict.fromkeys(t.question.question_id for t in trajectories)),
            datums=len(trajectories),
            updated=True,
            metrics=step_metrics(trajectories, step) | (metrics or {}),
        )
    )


def start_run(runs_dir: Path, name: str = "demo", **settings: object) -> Run:
    """A run without a step yet."""
    resolved = {
        "profile": "local",
        "policy_service": "embedded",
        "base_model": "tiny",
        "search_backend": "local",
        "questions_per_batch": 4,
        "group_size": 4,
        "max_steps": 6,
        **settings,
    }
    run = Run.start(runs_dir, name, resolved, {"base_model": resolved["base_model"]})
    run.append(
        StepRecord(
            step=0,
            policy_ref=None,
            state="trio://run/weights/step_0",
            saved=True,
            state_size=1_000_000,
            training_run="run",
            sampler_weights=None,
            time="2030-01-01T00:00:00+00:00",
            digest="d" * 16,
        )
    )
    return run


def make_run(
    runs_dir: Path,
    name: str = "demo",
    *,
    steps: int = 6,
    questions_per_batch: int = 4,
    group_size: int = 4,
    save_every: int = 3,
    evaluation_questions: int = 28,
    seed: int = 0,
    hostile: bool = False,
    watchdog_at: int | None = None,
) -> Run:
    """A whole run with the base and every checkpoint evaluated."""
    run = start_run(
        runs_dir,
        name,
        questions_per_batch=questions_per_batch,
        group_size=group_size,
        max_steps=steps,
    )
    chance = random.Random(seed)
    extra = HOSTILE if hostile else ""
    training = make_questions(steps * questions_per_batch, "train", extra)
    held_out = make_questions(evaluation_questions, "dev", extra)
    write_evaluation(
        run, "base", held_out, Skill.at(0), checkpoint="base", step=0, seed=seed, hostile=hostile
    )
    for step in range(1, steps + 1):
        skill = Skill.at(step / steps)
        batch = training[(step - 1) * questions_per_batch : step * questions_per_batch]
        trajectories = [
            make_trajectory(question, index, skill, chance, hostile=hostile)
            for question in batch
            for index in range(group_size)
        ]
        checkpoint = step % save_every == 0 or step == steps
        warning = {"watchdog/all_wrong_groups": 0.75} if step == watchdog_at else {}
        write_step(run, step, trajectories, checkpoint=checkpoint, metrics=warning)
        if checkpoint:
            label = f"step_{step}"
            write_evaluation(
                run,
                label,
                held_out,
                skill,
                checkpoint=label,
                step=step,
                seed=seed + step,
                hostile=hostile,
            )
    return run


def with_stop(trajectory: Trajectory, stop: StopReason) -> Trajectory:
    """The same trajectory, ended by an error outside of the policy."""
    return replace(
        trajectory,
        stop_reason=stop,
        em=False,
        valid_format=False,
        reward=-0.1,
        error="the search service failed",
    )
