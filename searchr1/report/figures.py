"""Figures for papers: each as PNG (200 dpi) and SVG, drawn by matplotlib without a display."""

import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import patheffects as path_effects
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from searchr1.evaluation import Metric
from searchr1.files import replacing
from searchr1.report.example import Example
from searchr1.report.scores import Series
from searchr1.report.training import CHARTS, Chart, Training

BLUE, ORANGE, GREEN, RED, PURPLE, GREY = (
    "#2b66a8",
    "#c4701a",
    "#2c8566",
    "#b3413c",
    "#7559a6",
    "#7a7f87",
)
PALETTE = (BLUE, ORANGE, GREEN, RED, PURPLE, GREY)
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.edgecolor": "#b9bdc4",
    "axes.labelcolor": "#4a4f57",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e7e9ec",
    "xtick.color": "#4a4f57",
    "ytick.color": "#4a4f57",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "searchr1",
}

EM_AND_FORMAT = "em_and_format_by_checkpoint"
EM_BY_SOURCE = "em_by_source"
TRAJECTORY = "trajectory_base_against_checkpoints"
_HALO = [path_effects.withStroke(linewidth=3, foreground="white")]


def draw_figures(
    folder: Path, series: Series | None, training: Training, example: Example | None
) -> list[str]:
    """Draw every figure that there is data for; returns their names, each with `.png` and
    `.svg` in `folder`."""
    drawn = []
    if series is not None:
        drawn.append(_write(folder, EM_AND_FORMAT, lambda axes: em_and_format(axes, series)))
        drawn.append(_write(folder, EM_BY_SOURCE, lambda axes: em_by_source(axes, series)))
    if example is not None:
        height = 0.18 * (len(_question_lines(example)) + 3 + max(map(len, example_lines(example))))
        drawn.append(
            _write(folder, TRAJECTORY, lambda axes: trajectory(axes, example), (9.6, height))
        )
    for chart in CHARTS:
        if training.lines(chart):
            drawn.append(_write(folder, chart.name, lambda axes, c=chart: curve(axes, c, training)))
    return drawn


def _write(
    folder: Path, name: str, draw: Callable[[Axes], None], size: tuple[float, float] = (6.4, 4.0)
) -> str:
    # A Figure of its own, and no pyplot: no global state, safe in any thread.
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # A letter that no font here has is drawn as a box; that is no reason for a warning each.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure.add_subplot())
        for suffix in ("png", "svg"):
            with replacing(folder / f"{name}.{suffix}") as temporary:
                metadata = {"Date": None} if suffix == "svg" else None
                figure.savefig(temporary, format=suffix, dpi=200, metadata=metadata)
            figure.set_layout_engine("none")  # laid out by now, and that is slow
    return name


def _label(text: str) -> str:
    """A name that fits beside a figure; a dollar sign in it is no formula."""
    return textwrap.shorten(text, 40, placeholder="…").replace("$", r"\$")


def em_and_format(axes: Axes, series: Series) -> None:
    """Macro EM and format rate by checkpoint, each with its 95% interval."""
    shown = series.all
    places = list(range(len(shown)))
    for offset, colour, name, estimates in (
        (-0.04, BLUE, "macro EM", [one.summary.macro[Metric.EM] for one in shown]),
        (0.04, ORANGE, "format rate", [one.summary.overall[Metric.VALID_FORMAT] for one in shown]),
    ):
        values = [100 * estimate.value for estimate in estimates]
        axes.errorbar(
            [place + offset for place in places],
            values,
            yerr=[
                [100 * (estimate.value - estimate.low) for estimate in estimates],
                [100 * (estimate.high - estimate.value) for estimate in estimates],
            ],
            color=colour,
            marker="o",
            markersize=5,
            linewidth=1.8,
            elinewidth=1.1,
            capsize=3,
            label=name,
        )
        for place, value in zip(places, values, strict=True):
            axes.annotate(
                f"{value:.1f}",
                (place + offset, value),
                textcoords="offset points",
                xytext=(7, 6) if colour == ORANGE else (7, -13),
                fontsize=8.5,
                color=colour,
                path_effects=_HALO,
            )
    axes.set_xticks(places, [_label(one.label).replace(" (", "\n(") for one in shown])
    axes.set_xlim(-0.4, len(shown) - 0.6 + 0.2)
    axes.set_ylim(0, 105)
    axes.set_ylabel("%")
    title = f"EM and format by checkpoint\n{series.title}; bars: 95% intervals"
    axes.set_title(title).set_parse_math(False)
    axes.legend(loc="lower right")


def em_by_source(axes: Axes, series: Series) -> None:
    """EM of base and last checkpoint for each source, with Wilson's intervals."""
    shown = [one for one in (series.base, series.last) if one is not None]
    sources = sorted({source for one in shown for source in one.summary.sizes})
    for number, (one, colour) in enumerate(zip(shown, (GREY, BLUE), strict=False)):
        estimates = [one.summary.by_source[source][Metric.EM] for source in sources]
        axes.errorbar(
            [100 * estimate.value for estimate in estimates],
            [place + (0.14 if number else -0.14) for place in range(len(sources))],
            xerr=[
                [100 * (estimate.value - estimate.low) for estimate in estimates],
                [100 * (estimate.high - estimate.value) for estimate in estimates],
            ],
            linestyle="none",
            marker="o",
            color=colour,
            elinewidth=1.3,
            capsize=2.5,
            label=_label(one.label),
        )
    sizes = shown[0].summary.sizes
    axes.set_yticks(range(len(sources)), [f"{_label(s)} ({sizes.get(s, 0)})" for s in sources])
    axes.set_ylim(len(sources) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("EM, % (questions in brackets)")
    axes.set_title("EM by source; bars: 95% intervals")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)


def curve(axes: Axes, chart: Chart, training: Training) -> None:
    """One training chart over steps; where the watchdog warned, a red mark."""
    lines: Mapping[str, Sequence[float | None]] = training.lines(chart)
    drawn = dict(zip(lines, PALETTE, strict=False))
    values = {label: [float("nan") if v is None else v for v in vs] for label, vs in lines.items()}
    if chart.stacked:
        axes.stackplot(
            training.steps,
            *([0.0 if v is None else v for v in vs] for vs in lines.values()),
            labels=list(lines),
            colors=list(drawn.values()),
            alpha=0.85,
        )
    else:
        for label, ys in values.items():
            marker = "o" if len(training.steps) < 40 else None
            axes.plot(
                training.steps,
                ys,
                color=drawn[label],
                linewidth=1.6,
                marker=marker,
                markersize=3,
                label=label,
            )
    for step in training.warnings:
        axes.axvline(step, color=RED, linewidth=0.9, linestyle=":")
    axes.set_xlabel("step")
    axes.set_ylabel(chart.unit)
    axes.set_title(chart.title)
    if chart.share:
        axes.set_ylim(-0.02, 1.02)
    if len(lines) > 1:
        axes.legend(loc="best", fontsize=8.5)


_MARKS = {"search": ("searches: ", BLUE), "result": ("reads: ", GREY), "answer": ("answers: ", "")}


def example_lines(example: Example) -> list[list[tuple[str, str]]]:
    """(text, colour) of each line of each policy's column."""
    width = 138 // len(example.policies)
    columns = []
    for played in example.policies:
        lines: list[tuple[str, str]] = []
        for act in played.acts:
            word, colour = _MARKS[act.kind]
            colour = colour or (GREEN if played.right else RED)
            text = f"{word}{' '.join(act.text.split())}"
            wrapped = textwrap.wrap(text, width, max_lines=4, placeholder=" …")
            lines += [(line, colour) for line in wrapped]
            if act.kind != "search":
                lines.append(("", colour))
        columns.append(lines)
    return columns


def _question_lines(example: Example) -> list[str]:
    accepted = f"accepted: {' / '.join(example.answers)}"
    texts = [" ".join(text.split()) for text in (example.question, accepted)]
    return [line for text in texts for line in textwrap.wrap(text, 110, max_lines=3)]


def trajectory(axes: Axes, example: Example) -> None:
    """One question that was gained: what base and checkpoints searched for, read, answered."""
    columns, question = example_lines(example), _question_lines(example)
    axes.set_axis_off()
    axes.set_xlim(0, len(columns))
    axes.set_ylim(max(map(len, columns)), -len(question) - 2.5)
    for row, line in enumerate(question):
        _text(axes, 0, row - len(question) - 2, line, "black", fontsize=10.5, weight="bold")
    for place, (played, lines) in enumerate(zip(example.policies, columns, strict=True)):
        head = f"{played.label}: {'right' if played.right else 'wrong'}"
        _text(axes, place, -1, head, GREEN if played.right else RED, weight="bold")
        for row, (line, colour) in enumerate(lines):
            _text(axes, place, row, line, colour)


def _text(axes: Axes, x: float, y: float, text: str, colour: str, **options: Any) -> None:
    drawn = axes.text(x, y, text, color=colour, va="center", **{"fontsize": 8.5, **options})
    drawn.set_parse_math(False)  # a dollar sign in a question is a dollar sign
