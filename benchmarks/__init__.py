"""Benchmarks: each compares two things in one run and writes outputs/bench/<name>.json."""
