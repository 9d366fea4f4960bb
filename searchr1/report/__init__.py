"""The report of a run: one HTML page, figures for papers, a headline, a table in the terminal.

Everything is read from the warehouse, and from the Parquet files for tokens; nothing here
computes a score of its own.
"""

from searchr1.report.headline import headline
from searchr1.report.page import build_report
from searchr1.report.table import print_summary

__all__ = ["build_report", "headline", "print_summary"]
