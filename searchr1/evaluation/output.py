"""The seed's JSONL of an evaluation: one line a trajectory, and a summary as the last line.

Field and metric names are the seed's, so that its plotting script reads the file; names that the
seed does not have are added beside them.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from searchr1.evaluation.items import Item, Metric, items_from
from searchr1.evaluation.summary import Summary, summarise
from searchr1.trajectory import Trajectory


def question_row(trajectory: Trajectory) -> dict[str, object]:
    """One trajectory as the seed writes it, with our further scores."""
    return {
        "type": "trajectory",
        "id": trajectory.question.question_id,
        "question": trajectory.question.question,
        "answers": list(trajectory.question.answers),
        "data_source": trajectory.question.source,
        "final_text": trajectory.final_text,
        "reward": trajectory.reward,
        "exact_match": trajectory.em,
        "valid_format": trajectory.valid_format,
        "search_calls": len(trajectory.searches),
        "assistant_turns": len(trajectory.turns),
        "sample": trajectory.index,
        "answer": trajectory.answer,
        "em_squad": trajectory.em_squad,
        "f1": trajectory.f1,
        "cover_em": trajectory.cover_em,
        "stop_reason": trajectory.stop_reason.value,
        "valid": trajectory.valid,
    }


def evaluation_metrics(
    summary: Summary, search: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The seed's metric names and values (`em/macro`, `em/<source>`, `format/rate`, `rollout/…`),
    and `search/…` as the search layer counted them. Values that are unknown are left out."""
    macro, overall = summary.macro, summary.overall
    found = {
        f"em/{source}": values[Metric.EM].value for source, values in summary.by_source.items()
    }
    found |= {
        "em/macro": macro[Metric.EM].value,
        "em_squad/macro": macro[Metric.EM_SQUAD].value,
        "f1/macro": macro[Metric.F1].value,
        "cover_em/macro": macro[Metric.COVER_EM].value,
        "format/rate": overall[Metric.VALID_FORMAT].value,
        "rollout/search_calls": overall[Metric.SEARCHES].value,
        "rollout/no_search_rate": overall[Metric.NO_SEARCH].value,
        "rollout/turns": overall[Metric.TURNS].value,
        "rollout/trajectory_tokens": overall[Metric.TOKENS].value,
        "rollout/invalid_rate": summary.invalid / summary.items if summary.items else math.nan,
        "search/success_rate": overall[Metric.SEARCH_SUCCESS].value,
    }
    found |= {f"pass@{k}/macro": estimate.value for k, estimate in summary.pass_at.items()}
    found |= dict(search or {})
    return {name: value for name, value in found.items() if math.isfinite(value)}


def seed_summary_line(
    items: Sequence[Item],
    *,
    base_model: str,
    model_path: str | None,
    search_backend: str,
    search: Mapping[str, float] | None = None,
    extra: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """The last line of the file. `extra` holds further settings worth keeping with the numbers
    (`search_concurrency`, `search_timeout`, `environment_fingerprint`, …)."""
    summary = summarise(items)
    return {
        "type": "summary",
        "base_model": base_model,
        "model_path": model_path,
        "search_backend": search_backend,
        **(extra or {}),
        "evaluated_examples": len(items),
        "metrics": evaluation_metrics(summary, search),
        "intervals": {
            "em/macro": list(summary.macro[Metric.EM][1:]),
            "format/rate": list(summary.overall[Metric.VALID_FORMAT][1:]),
        }
        if summary.questions
        else {},
        "warnings": list(summary.warnings),
    }


def jsonl_lines(
    trajectories: Iterable[Trajectory],
    *,
    base_model: str,
    model_path: str | None,
    search_backend: str,
    search: Mapping[str, float] | None = None,
    extra: Mapping[str, object] | None = None,
) -> Iterator[str]:
    """The whole file, line by line, without line ends."""
    items: list[Item] = []
    for trajectory in trajectories:
        items += items_from([trajectory])
        yield json.dumps(question_row(trajectory), ensure_ascii=False)
    summary = seed_summary_line(
        items,
        base_model=base_model,
        model_path=model_path,
        search_backend=search_backend,
        search=search,
        extra=extra,
    )
    yield json.dumps(summary, ensure_ascii=False)
