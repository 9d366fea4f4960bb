"""The policy learns to search: 20 steps, three seeds, the whole stack.

Run by `make test-learning`; prints the curve and the table that the README shows.
"""

from pathlib import Path

import pytest

from searchr1.evaluation import items_from
from searchr1.runs import Run
from searchr1.trajectory_store import read_trajectories

SEEDS = (0, 1, 2)
GREEDY, SAMPLED = ("1", "0"), ("4", "1")


def _evaluate(flows, run_name: str, samples: str, temperature: str) -> dict[str, list]:
    """Items of base and step 20, by checkpoint."""
    flows.run(
        *("eval_flow", "--profile", "local", "--run", run_name, "--ckpts", "step_20"),
        *("--samples", samples, "--temperature", temperature),
    )
    found = {}
    for file in (flows.runs_dir / run_name / "evaluations").glob("*.parquet"):
        items = items_from(read_trajectories(file))
        if len(items) == 70 * int(samples):
            found[file.name.split(".")[0]] = items
    return found


def _row(items: list) -> tuple[float, float, float]:
    """EM, format rate, searches on two-hop questions."""
    two_hop = [item.searches for item in items if item.source == "two_hop"]
    return (
        sum(item.em for item in items) / len(items),
        sum(item.valid_format for item in items) / len(items),
        sum(two_hop) / len(two_hop),
    )


@pytest.mark.learning
@pytest.mark.timeout(3600)
def test_twenty_steps_teach_the_policy_to_search(flows, capsys):
    flows.run("prepare_flow", "--profile", "local")
    lines, curves = [], []
    for seed in SEEDS:
        name = f"seed-{seed}"
        flows.run(
            *("train_flow", "--profile", "local", "--run-name", name, "--seed", str(seed)),
            *("--swanlab-mode", "disabled"),
            seconds=1200,
        )
        ledger = Run.open(Path(flows.runs_dir), name).ledger()
        curves.append([ledger[step].metrics["reward/correct"] for step in range(1, 21)])
        greedy = _evaluate(flows, name, *GREEDY)
        sampled = _evaluate(flows, name, *SAMPLED)
        rows = {
            (label, how): _row(items[label])
            for how, items in (("greedy", greedy), ("temperature 1", sampled))
            for label in ("base", "step_20")
        }
        for (label, how), (em, form, searches) in rows.items():
            lines.append(
                f"seed {seed}  {label:8} {how:14} EM {em:.2f}  format {form:.2f}  "
                f"two-hop searches {searches:.2f}"
            )
        with capsys.disabled():
            print("\n" + "\n".join(lines[-4:]))
            print("   training EM by step: " + " ".join(f"{x:.2f}" for x in curves[-1]))
        base, trained = rows["base", "greedy"], rows["step_20", "greedy"]
        assert trained[0] - base[0] >= 0.30
        assert trained[1] >= 0.95
        assert trained[2] > base[2]
        assert rows["step_20", "temperature 1"][0] - rows["base", "temperature 1"][0] >= 0.25
