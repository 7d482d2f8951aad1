"""Checks a Parquet file before training does: what would crash verl, be dropped in silence, or score wrongly.

    report = check_parquet("data/train.parquet", processor="models/qwen", max_prompt_length=1024)
    for problem in report.problems: print(problem)

Rows are counted from 0, as verl counts them. Files that others wrote are read too: what is merely unlike ours is a
warning.
"""

from radverl.datacheck.check import check_parquet, main
from radverl.datacheck.report import DataFileError, Problem, Report

__all__ = ["DataFileError", "Problem", "Report", "check_parquet", "main"]
