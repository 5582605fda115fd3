"""What runs did and what a server does, as pages: made from run folders and traces only."""

from trinity_jax.report.dashboard import dashboard_page
from trinity_jax.report.page import write_report
from trinity_jax.report.runs import find_runs, run_page, runs_data

__all__ = ["dashboard_page", "find_runs", "run_page", "runs_data", "write_report"]
