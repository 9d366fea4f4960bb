"""Numbers of an evaluation with their uncertainty: pure functions from items to statistics.

Always true here: the unit of chance is the question (its samples are averaged first); rates and
means are over *valid* items only, because a trajectory that ended by `environment_error` or
`sampling_error` is a missing answer, not a wrong one. Such items are counted, never hidden, and
`Summary.warnings` says so in words.
"""

from searchr1.evaluation.comparison import (
    Comparison,
    DifferentQuestions,
    EnvironmentsDiffer,
    comparable,
    compare,
    require_comparable,
    verdict,
)
from searchr1.evaluation.intervals import Estimate, wilson
from searchr1.evaluation.items import Item, Metric, items_from
from searchr1.evaluation.output import (
    evaluation_metrics,
    jsonl_lines,
    question_row,
    seed_summary_line,
)
from searchr1.evaluation.summary import Summary, resolution, summarise

__all__ = [
    "Comparison",
    "DifferentQuestions",
    "EnvironmentsDiffer",
    "Estimate",
    "Item",
    "Metric",
    "Summary",
    "comparable",
    "compare",
    "evaluation_metrics",
    "items_from",
    "jsonl_lines",
    "question_row",
    "require_comparable",
    "resolution",
    "seed_summary_line",
    "summarise",
    "verdict",
    "wilson",
]
