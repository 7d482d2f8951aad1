"""Judging a trained model: generate reports, measure them against the truth, draw what changed.

generate.py writes the reports, metrics.py measures labels, run.py ties both to a Parquet file, score.py rewards any
file of predictions, verl_log.py reads training logs, pictures.py draws.
"""
