"""Build the report's folder."""

from pathlib import Path

from searchr1.report.figures import draw_figures
from searchr1.report.scores import read_series
from searchr1.report.training import read_training
from searchr1.warehouse import load, open_warehouse


def build_report(runs_dir: Path, run_name: str) -> Path:
    """Write `runs/<run>/report/` and return the path of its index.html."""
    load(runs_dir)
    folder = runs_dir / run_name / "report"
    with open_warehouse(runs_dir) as connection:
        series = read_series(connection, run_name)
        training = read_training(connection, run_name)
    draw_figures(folder, series[0] if series else None, training)
    return folder / "index.html"
