"""Samples without a reward: kept out of advantages and statistics, counted, and, when they are too many, the run's end.

For every V1 trainer of verl that runs with the reward manager `radverl`; docs/failures.md has the rules.
    flags.py        which rows failed and why, read from what the reward manager returned
    advantages.py   verl's own estimator on the rows that have a reward
    stop.py         counts over the last batches and the sentence that ends a run
    validation.py   verl's validation metrics without the failed samples
    hooks.py        puts these into verl's trainer, and counts
    dump.py         rollout dumps that carry the flags
    workers.py      reward workers that come back when they are killed
"""
