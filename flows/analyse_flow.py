"""Analyse: every trajectory into the warehouse, figures and the report of a run.

python flows/analyse_flow.py --run demo
"""

from flows.settings_flow import main, settings_flow
from tasks.analyse import load_warehouse, report

from prefect import get_run_logger

from searchr1.config import AnalyseSettings
from searchr1.runs import Run


@settings_flow(AnalyseSettings, name="analyse")
async def analyse(settings: AnalyseSettings) -> str:
    """Load all runs into the warehouse and write the report of one of them.

    Returns the path of the report.
    """
    runs_dir = settings.runs_dir
    run = Run.find(runs_dir, settings.run)
    warehouse = await load_warehouse(runs_dir)
    file = await report(runs_dir, run.name)
    get_run_logger().info("warehouse: %s; report: %s", warehouse, file)
    return str(file)


async def check(settings: AnalyseSettings) -> None:
    """What can be found wrong before anything is started."""
    Run.find(settings.runs_dir, settings.run)


if __name__ == "__main__":
    main(analyse, AnalyseSettings, check)
