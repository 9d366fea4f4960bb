"""What a person sees of runs: within 80 columns, true to the ledger, and clear when it is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchr1.config import TrainSettings, resolve
from searchr1.runs import Run, StepRecord
from searchr1.runs_cli import app, changed_settings, ranges

HEALTHY = {
    "reward/mean": 0.5,
    "reward/correct": 0.5,
    "reward/format": 0.95,
    "rollout/search_calls": 1.5,
    "rollout/degenerate_group_rate": 0.25,
    "time/step_seconds": 12.0,
    "cost/search_usd": 0.25,
    "cost/sample_usd": 0.5,
    "cost/train_usd": 0.75,
    "cost/total_usd": 1.5,
}
LONG = "a-name-as-long-as-a-name-may-be." * 2 + "0123456789012345"


def make_run(runs_dir: Path, steps: int, name: str = "demo", **given) -> Run:
    settings = resolve(TrainSettings, {"max_steps": 20, "run_name": name, **given})
    run = Run.start(runs_dir, name, settings.model_dump(mode="json"), {"seed": 1})
    for step in range(steps + 1):
        kept = step and step % 5 == 0
        uri = "trio://run_cdcef6b71a6e3b5d2e841516"
        run.append(
            StepRecord(
                step=step,
                policy_ref=f"{uri}/training_states/{name}-{step - 1:05d}",
                state=f"{uri}/training_states/{name}-{run.run_id}-step-{step:05d}",
                saved=True,
                state_size=2_100_000,
                training_run="run_cdcef6b71a6e3b5d2e841516",
                sampler_weights=f"{uri}/sampler_weights/{name}-step-{step}" if kept else None,
                time=f"2030-01-02T03:{step:02d}:00+00:00",
                digest="0123456789ab",
                datums=48,
                updated=True,
                metrics=dict(HEALTHY, **{"reward/mean": step / 10}) if step else {},
            )
        )
    return run


@pytest.fixture
def ask(tmp_path, capsys, monkeypatch):
    """Run a command on `tmp_path`: (exit status, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app([*arguments, "--runs-dir", str(tmp_path)])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def widest(text: str) -> int:
    return max(len(line) for line in text.splitlines() if "://" not in line and "/" not in line[:1])


def test_list_shows_how_far_each_run_is_and_what_it_cost(tmp_path, ask):
    make_run(tmp_path, 7)
    make_run(tmp_path, 0, LONG)
    status, out, _ = ask("list")
    assert status == 0
    demo = next(line for line in out.splitlines() if line.startswith("demo"))
    for cell in ("7/20", "0.70", "1 (step_5)", "USD 10.50"):
        assert cell in demo
    assert "0/20" in out
    assert widest(out) <= 80
    assert LONG in "".join(line.split("  ")[0].strip() for line in out.splitlines())


def test_list_says_how_to_begin_when_there_is_nothing(ask):
    status, out, _ = ask("list")
    assert status == 0
    assert "no run" in out and "flows/train_flow.py" in out


def test_one_damaged_run_does_not_hide_the_others(tmp_path, ask):
    make_run(tmp_path, 3, "good")
    (make_run(tmp_path, 3, "bad").directory / "ledger.jsonl").write_text('{"step"\n{"step": 2}\n')
    (make_run(tmp_path, 3, "worse").directory / "run.json").write_text("{}")
    status, out, _ = ask("list")
    assert status == 0
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert "3/20" in lines["good"]
    assert "damaged" in lines["bad"] and "damaged" in lines["worse"]
    for name in ("bad", "worse"):
        status, _, err = ask("show", name)
        assert status == 2
        assert f"run '{name}' cannot be read" in err


def test_show_tells_settings_progress_money_and_place(tmp_path, ask):
    run = make_run(tmp_path, 7, learning_rate=0.01)
    status, out, _ = ask("show", "demo")
    assert status == 0
    assert run.run_id in out and "profile local" in out
    setting = next(line for line in out.splitlines() if line.startswith("learning_rate"))
    assert setting.split() == ["learning_rate", "0.01", "0.003"]
    assert "step 7 of 20 finished at 2030-01-02T03:07:00+00:00, reward 0.700" in out
    assert "checkpoints: step_5" in out
    assert "USD 10.50 in 7 steps: search USD 1.75, sampling USD 3.50, training USD 5.25" in out
    assert "warnings\nnone" in out
    assert str(run.directory / "ledger.jsonl") in out
    assert widest(out) <= 80


def test_show_prints_the_last_steps_with_their_metrics(tmp_path, ask):
    make_run(tmp_path, 14)
    _, out, _ = ask("show", "demo")
    rows = [line.split() for line in out.splitlines() if line[:4].strip().isdigit()]
    assert [row[0] for row in rows] == [str(step) for step in range(5, 15)]
    assert rows[-1] == ["14", "1.40", "50%", "95%", "1.50", "25%", "12", "1.500", "48"]


def test_show_marks_the_steps_that_the_watchdog_warns_of(tmp_path, ask):
    run = make_run(tmp_path, 10)
    last = run.ledger()[10]
    for step in (11, 12, 14):
        bad = dict(last.metrics, **{"watchdog/non_finite": 1.0})
        run.append(StepRecord(**{**vars_of(last), "step": step, "metrics": bad}))
        run.append(StepRecord(**{**vars_of(last), "step": step + 1}))
    _, out, _ = ask("show", "demo")
    assert "non_finite, step 11-12, 14:" in out
    marked = [line.split()[0] for line in out.splitlines() if line.rstrip().endswith(" !")]
    assert marked == ["11", "12", "14"]


def vars_of(record: StepRecord) -> dict:
    return {name: getattr(record, name) for name in StepRecord.__dataclass_fields__}


def test_show_of_a_run_that_has_only_begun(tmp_path, ask):
    make_run(tmp_path, 0)
    status, out, _ = ask("show", "demo")
    assert status == 0
    assert "no step of 20 is finished yet" in out and "none yet" in out


def test_checkpoints_gives_uris_that_can_be_copied(tmp_path, ask):
    run = make_run(tmp_path, 10, LONG)
    status, out, _ = ask("checkpoints", LONG)
    assert status == 0
    lines = out.splitlines()
    row = next(line for line in lines if line.startswith("step_5 ")).split()
    assert row == ["step_5", "5", "0.50", "2.1", "MB", "2030-01-02", "03:05", "0123456789ab"]
    for record in run.checkpoints().values():
        assert any(line.endswith(record.state) for line in lines)
        assert any(line.endswith(str(record.sampler_weights)) for line in lines)
    assert widest(out) <= 80


def test_a_run_without_checkpoints_says_so(tmp_path, ask):
    make_run(tmp_path, 3)
    assert ask("checkpoints", "demo")[:2] == (0, "Run 'demo' has no checkpoint yet.\n")


@pytest.mark.parametrize("command", ["show", "checkpoints"])
def test_an_unknown_run_names_those_there_are(tmp_path, ask, command):
    make_run(tmp_path, 1)
    status, out, err = ask(command, "nope")
    assert (status, out) == (2, "")
    assert "no run 'nope'" in err and "demo" in err


@pytest.mark.parametrize("command", [("list",), ("show", "demo"), ("checkpoints", "demo")])
def test_a_torn_ledger_shows_the_whole_steps(tmp_path, ask, command):
    run = make_run(tmp_path, 6)
    whole = ask(*command)
    with (run.directory / "ledger.jsonl").open("a") as ledger:
        ledger.write('{"step": 7, "policy_ref": "trio://run_cdc')
    assert ask(*command) == whole


def test_text_in_settings_is_not_taken_for_markup(tmp_path, ask):
    make_run(tmp_path, 1, system_prompt="[bold]Answer[/bold] [/nothing]")
    status, out, _ = ask("show", "demo")
    assert status == 0
    assert "[bold]Answer[/bold]" in out


def test_settings_of_an_older_program_are_shown_as_they_are():
    settings = resolve(TrainSettings, {}).model_dump(mode="json") | {"once": 3}
    assert changed_settings(settings) == {"once": ("3", "")}
    assert changed_settings({"profile": "gone", "seed": 42}) == {"seed": ("42", "")}


@given(st.sets(st.integers(0, 60), min_size=1))
def test_ranges_name_exactly_the_steps(steps):
    named: set[int] = set()
    for part in ranges(sorted(steps)).split(", "):
        first, _, last = part.partition("-")
        named |= set(range(int(first), int(last or first) + 1))
    assert named == steps


def test_the_module_runs_as_documented(tmp_path):
    make_run(tmp_path, 2)
    done = subprocess.run(
        [sys.executable, "-m", "searchr1.runs", "show", "nope", "--runs-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: there is no run 'nope'")
    assert "Traceback" not in done.stderr
