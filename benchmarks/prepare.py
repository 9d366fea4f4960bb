"""Times the preparation of a set of the real size against a loop over rows.

    python benchmarks/prepare.py [--scale 0.1] [--folder DIR]

The loop does the same work row by row over `datasets`, as data scripts usually do: once over
rows with all columns, once with only the columns that are needed. Each runs in a process of its
own, so that its peak memory is its own; the files must come out equal.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
CONTENDERS = {
    "columnar": "this project's preparation",
    "rows": "row loop, all columns",
    "rows_selected": "row loop, needed columns only",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the published rows")
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        raw = folder / "synthetic"
        raw.mkdir(parents=True, exist_ok=True)
        console.print(f"writing the synthetic set ({arguments.scale:g} of the published size)")
        _run("synthetic", raw, folder, str(arguments.scale))
        results = {}
        for name, title in CONTENDERS.items():
            console.print(f"timing: {title}")
            results[name] = _run(name, raw, folder / name)
        for split in ("train", "test", "dev70", "dev500"):
            expected = pq.read_table(folder / "columnar" / f"{split}.parquet")
            for name in results:
                if pq.read_table(folder / name / f"{split}.parquet") != expected:
                    raise SystemExit(
                        f"{name} made another {split} than this project: no comparison"
                    )
    console.print(_table(results))


def _table(results: dict[str, dict[str, float]]) -> Table:
    table = Table(title=f"Preparing {results['columnar']['rows']:,.0f} rows")
    table.add_column("how")
    for column in ("seconds", "times as long", "CPU seconds", "peak memory, MB"):
        table.add_column(column, justify="right")
    fastest = results["columnar"]["seconds"]
    for name, result in results.items():
        table.add_row(
            CONTENDERS[name],
            f"{result['seconds']:.2f}",
            f"{result['seconds'] / fastest:.1f}",
            f"{result['cpu_seconds']:.2f}",
            f"{result['peak_mb']:,.0f}",
        )
    return table


def _run(contender: str, raw: Path, out: Path, *more: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.prepare_contenders", contender, raw, out, *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{contender} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
