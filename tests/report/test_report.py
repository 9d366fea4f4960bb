"""Headline, tables, figures and the data behind the page, without a browser."""

import base64
import io
import itertools
import json
import random
import warnings
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console

from searchr1.errors import DataError
from searchr1.report import build_report, headline, print_summary
from searchr1.report.example import Act, Example, Played
from searchr1.report.figures import draw_figures
from searchr1.report.packing import chunks, compact_json, pack, script_json
from searchr1.report.scores import Series, read_series
from searchr1.report.tokens import TokenTexts, local_tokenizer
from searchr1.report.training import CHARTS, Training, read_training
from searchr1.report.viewer import read_viewer, spread
from searchr1.runs import Run
from searchr1.tiny_policy import MODEL_NAME
from searchr1.trajectory_store import read_trajectories
from searchr1.warehouse import load, open_warehouse
from tests.synthetic_run import (
    HOSTILE,
    ByteTokenizer,
    Skill,
    make_questions,
    start_run,
    write_evaluation,
)


def read_all_series(runs_dir: Path) -> list[Series]:
    """Load, and read the series of run demo."""
    load(runs_dir)
    with open_warehouse(runs_dir) as connection:
        return read_series(connection, "demo")


def evaluate(run: Run, name: str, step: int, skill: float, **options: object) -> None:
    """One evaluation on 21 questions."""
    write_evaluation(
        run,
        name,
        options.pop("questions", make_questions(21, "dev")),  # type: ignore[arg-type]
        Skill.at(skill),
        checkpoint=str(options.pop("checkpoint", name)),
        step=step,
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run without steps or evaluations."""
    return start_run(tmp_path / "runs")


# ---- series


def test_the_headline_is_about_the_last_checkpoint_and_not_the_luckiest(
    run: Run, tmp_path: Path
) -> None:
    evaluate(run, "base", 0, 0.0)
    evaluate(run, "step_1", 1, 3.0, seed=0)
    evaluate(run, "step_2", 2, 0.5, seed=0)
    (series,) = read_all_series(tmp_path / "runs")
    assert series.last is not None and series.last.checkpoint == "step_2"
    assert series.checkpoints[0].em > series.last.em
    text = headline(tmp_path / "runs", "demo")
    assert "(step 2)" in text.splitlines()[0]
    assert "step 1 scored higher" in text and "luckiest" in text


def test_other_questions_or_sampling_are_other_series(run: Run, tmp_path: Path) -> None:
    evaluate(run, "base", 0, 0.0)
    evaluate(run, "step_1", 1, 1.0)
    evaluate(run, "warm", 1, 1.0, checkpoint="step_1", temperature=1.0, samples=2)
    evaluate(run, "few", 1, 1.0, checkpoint="step_1", questions=make_questions(7, "dev"))
    series = read_all_series(tmp_path / "runs")
    assert [len(one.all) for one in series] == [2, 1, 1]
    main = series[0]
    assert main.base is not None and main.checkpoints[0].comparison is not None
    assert main.title == "dev70, 21 questions, greedy"
    assert {one.title for one in series[1:]} == {
        "dev70, 21 questions, temperature 1, 2 samples a question",
        "dev70, 7 questions, greedy",
    }


def test_another_environment_is_not_compared(run: Run, tmp_path: Path) -> None:
    evaluate(run, "base", 0, 0.0)
    evaluate(run, "step_1", 1, 1.0, environment={"search_backend": "other"})
    series = read_all_series(tmp_path / "runs")
    assert len(series) == 2
    assert all(one.comparison is None for s in series for one in s.checkpoints)
    assert "nothing to compare" in headline(tmp_path / "runs", "demo")


def test_a_forced_comparison_is_labelled_everywhere(run: Run, tmp_path: Path) -> None:
    runs_dir = tmp_path / "runs"
    evaluate(run, "base", 0, 0.0)
    other = {"search_backend": "other"}
    evaluate(run, "step_1", 1, 1.0, environment=other, forced_mixed=True)
    (series,) = read_all_series(runs_dir)
    assert series.checkpoints[0].mixed
    text = headline(runs_dir, "demo")
    assert "step 1 (other environment)" in text
    assert "Mixed environments" in text
    assert "other environment" in printed(runs_dir)
    page = build_report(runs_dir, "demo", tokenizer=ByteTokenizer()).read_text()
    assert page.count("other environment") >= 3
    assert "Mixed environments" in page


def test_the_latest_of_two_evaluations_of_a_checkpoint_counts(run: Run, tmp_path: Path) -> None:
    evaluate(run, "base", 0, 0.0)
    evaluate(run, "old", 1, 0.0, checkpoint="step_9")
    evaluate(run, "new", 2, 1.0, checkpoint="step_9")  # started later
    (series,) = read_all_series(tmp_path / "runs")
    assert [one.evaluation for one in series.all] == ["base", "new"]


# ---- words


def printed(runs_dir: Path, width: int = 80) -> str:
    """What `print_summary` prints on a terminal of this width."""
    console = Console(file=io.StringIO(), width=width)
    print_summary(runs_dir, "demo", console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_summary_fits_80_columns_and_shows_every_source(runs_dir: Path) -> None:
    text = printed(runs_dir)
    lines = text.splitlines()
    header = next(line for line in lines if "macro EM %" in line)
    base = lines[lines.index(header) + 1]
    assert base.split()[0] == "base" and base.count("[") == 2
    for step in (2, 4, 6):
        (row,) = (line for line in lines if line.strip().startswith(f"step {step}"))
        assert row.count("[") == 3  # EM, difference and format, each with its interval
    for source in ("nq", "musique", "bamboogle"):
        assert f"EM % {source}" in text
    assert "35 questions: an EM near 50%" in text


def test_the_artifact_holds_headline_table_and_caveats(runs_dir: Path) -> None:
    text = headline(runs_dir, "demo")
    assert text.startswith("# demo: EM ")
    assert "| base |" in text and "| step 6 |" in text
    assert "exact McNemar p" in text
    assert "±17 points" in text
    assert text.count("\n| ") == 6  # heading, rule, base, three checkpoints


def test_a_run_that_is_not_there_is_named(runs_dir: Path) -> None:
    with pytest.raises(DataError, match=r"'absent'.*demo"):
        build_report(runs_dir, "absent")


def test_environment_errors_show_as_a_warning(run: Run, tmp_path: Path) -> None:
    evaluate(run, "base", 0, 0.0)
    evaluate(run, "step_1", 1, 1.0, search_errors=0.5)
    text = printed(tmp_path / "runs", 200)
    assert "environment_error" in text and "missing answers, not wrong ones" in text
    assert "left out (errors outside)" in text


# ---- figures


def test_every_figure_is_there_as_png_and_svg(report: Path) -> None:
    names = {path.stem for path in report.parent.glob("*.png")}
    assert names == {path.stem for path in report.parent.glob("*.svg")}
    assert {
        "em_and_format_by_checkpoint",
        "em_by_source",
        "trajectory_base_against_checkpoints",
        *(chart.name for chart in CHARTS),
    } - names <= {"training_gradient"}  # the synthetic service returns no gradient norm
    for path in report.parent.glob("*.png"):
        with Image.open(path) as image:
            assert image.width >= 1200
            colours = image.convert("RGB").getcolors(1 << 24)
            assert colours is not None and len(colours) > 20  # something is drawn
    for path in report.parent.glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_figures_do_not_change_when_drawn_again(runs_dir: Path, tmp_path: Path) -> None:
    with open_warehouse(runs_dir) as connection:
        series = read_series(connection, "demo")[0]
    for folder in ("one", "two"):
        draw_figures(tmp_path / folder, series, Training((), {}), None)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_odd_text_in_a_figure_is_text(tmp_path: Path) -> None:
    odd = f"$\\frac{{x}}$ costs $5 {HOSTILE} 東京 {'long ' * 60}"
    acts = (Act("search", odd), Act("result", odd), Act("answer", odd))
    example = Example(odd, (odd,), (Played("base", False, acts), Played("step 1", True, acts)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = draw_figures(tmp_path, None, Training((), {}), example)
    assert drawn == ["trajectory_base_against_checkpoints"]


def test_gaps_in_metrics_are_gaps(runs_dir: Path, tmp_path: Path) -> None:
    training = Training((1, 2, 3), {"reward/mean": (0.1, None, 0.3)})
    assert draw_figures(tmp_path, None, training, None) == ["training_reward"]


def test_search_time_is_taken_out_of_the_rollout(runs_dir: Path) -> None:
    with open_warehouse(runs_dir) as connection:
        training = read_training(connection, "demo")
    (chart,) = (chart for chart in CHARTS if chart.name == "training_time")
    lines = training.lines(chart)
    rollout = training.metrics["time/rollout_seconds"]
    for total, rest, search in zip(
        rollout, lines["rollout without search"], lines["search"], strict=True
    ):
        assert total is not None and rest is not None and search is not None
        assert rest + search == pytest.approx(total)
    assert training.warnings == {4: ("watchdog/all_wrong_groups",)}


# ---- data in the page


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_script_json_holds_no_markup_and_reads_back(text: str) -> None:
    written = script_json({"text": text, "more": [HOSTILE, "]]>", "<!--"]})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written)["text"] == text


def test_packed_data_is_letters_only_and_reads_back() -> None:
    text = compact_json([HOSTILE, "ö東\U0001f600"])
    packed = pack(text)
    assert not set(packed) - set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
    )
    assert zlib.decompress(base64.b64decode(packed)).decode() == text


def test_data_with_a_value_that_json_does_not_know_is_refused() -> None:
    for write in (script_json, compact_json):
        with pytest.raises(ValueError, match="JSON"):
            write(float("nan"))


def test_chunks_keep_every_value_in_order() -> None:
    values = [(number, "x" * 90_000) for number in range(10)]
    packed = list(chunks(values))
    assert [pair for chunk in packed for pair in chunk] == values
    assert [len(chunk) for chunk in packed] == [3, 3, 3, 1]


@given(st.text(max_size=40))
def test_pieces_of_tokens_join_to_the_text(text: str) -> None:
    text = text.encode(errors="replace").decode()
    ids = ByteTokenizer().encode(text)
    pieces = TokenTexts(ByteTokenizer()).pieces(ids)
    assert len(pieces) == len(ids)
    if "\ufffd" not in text:
        assert "".join(pieces) == text


def test_a_broken_letter_costs_only_itself() -> None:
    ids = [*"aé".encode(), 0xC3, *b"z"]
    assert "".join(TokenTexts(ByteTokenizer()).pieces(ids)) == "aé\ufffdz"


def test_the_built_in_models_tokens_join_to_their_text() -> None:
    tokenizer: Any = local_tokenizer(MODEL_NAME)
    text = (
        '<tool_call>{"name": "search", "arguments": {"query": "Böök 東"}}</tool_call>\n Answer: x'
    )
    ids = tokenizer.encode(text)
    pieces = TokenTexts(tokenizer).pieces(ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    assert len(pieces) == len(ids)


def test_a_tokenizer_that_is_not_on_this_machine_is_not_fetched() -> None:
    assert local_tokenizer("nobody/no-such-model") is None


@pytest.mark.parametrize("count", [0, 1, 2, 7, 64, 200])
def test_any_beginning_of_the_order_is_spread_over_the_run(count: int) -> None:
    order = spread(count)
    assert sorted(order) == list(range(count))
    for taken in range(4, count):
        chosen = sorted(order[:taken])
        widest = max(b - a for a, b in itertools.pairwise(chosen))
        assert widest <= 4 * count / taken + 1


def test_the_viewers_details_are_the_stored_trajectories(runs_dir: Path) -> None:
    with open_warehouse(runs_dir) as connection:
        series = read_series(connection, "demo")
        viewer = read_viewer(connection, runs_dir, "demo", series, TokenTexts(ByteTokenizer()))
    assert viewer.notes == ()
    columns, index = viewer.index["columns"], viewer.index
    unpacked = [json.loads(zlib.decompress(base64.b64decode(c))) for c in viewer.chunks]
    stored = {
        (t.question.question_id, t.index): t
        for t in read_trajectories(runs_dir / "demo" / "trajectories" / "step_00003.parquet")
    }
    (place,) = (n for n, one in enumerate(index["places"]) if one["key"] == "3")
    rows = [n for n, where in enumerate(columns["place"]) if where == place]
    assert len(rows) == len(stored) == 16
    for row in random.Random(0).sample(rows, 8):
        question = index["questions"][columns["question"][row]]
        trajectory = stored[question["id"], columns["sample"][row]]
        detail = unpacked[columns["chunk"][row]][columns["slot"][row]]
        assert question["text"] == trajectory.question.question
        assert columns["reward"][row] == trajectory.reward
        assert [turn["text"] for turn in detail["turns"]] == [t.text for t in trajectory.turns]
        assert [s["query"] for s in detail["searches"]] == [s.query for s in trajectory.searches]
        tokens = detail["tokens"]
        assert sum(tokens["lengths"]) == len(tokens["text"].encode("utf-16-le")) // 2
        assert sum(tokens["drawn"][1::2]) == sum(trajectory.loss_mask) == len(tokens["logprobs"])
        assert len(tokens["lengths"]) == len(trajectory.tokens)


def test_a_long_run_lists_evaluations_first_and_says_what_is_missing(runs_dir: Path) -> None:
    with open_warehouse(runs_dir) as connection:
        series = read_series(connection, "demo")
        viewer = read_viewer(
            connection,
            runs_dir,
            "demo",
            series,
            TokenTexts(ByteTokenizer()),
            most_listed=4 * 35 + 20,
            detail_characters=1,
        )
    phases = [place["phase"] for place in viewer.index["places"]]
    assert phases == ["evaluation"] * 4 + ["train"] * 2
    assert [p["key"] for p in viewer.index["places"]][4:] == ["6", "1"]
    assert "172 of the run's 236 trajectories are listed" in viewer.notes[0]
    assert "of the 172 listed trajectories can be opened" in viewer.notes[1]
    assert len(viewer.chunks) == 1
