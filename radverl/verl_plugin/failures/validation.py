"""verl's validation metrics over the samples that have a score; the others are counted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from radverl.verl_plugin.failures.flags import CAUSE_PREFIX, FAILED, Tally, cause_of, tally_of

Counts = Mapping[tuple[str, str], int]


def without_failed(
    data_sources: Sequence[str], uids: Sequence[str], infos: Mapping[str, list[Any]], expected: Counts | None
) -> tuple[dict[str, list[Any]], Counts | None, dict[str, float], Tally]:
    """Blank the values of failed samples, which verl then leaves out.

    Args:
        data_sources, uids: of each sample.
        infos: verl's columns, "reward" among them; None where a sample lacks a value.
        expected: samples that verl expects of each (data source, uid): it counts a missing `acc` as 0.
    Returns:
        (infos, expected, metrics, tally): the first two without the failed samples; counts per data source as
        "val-aux/<data source>/failed/sum" and "val-aux/<data source>/failed_<cause>/sum".
    """
    samples = [
        {name: values[number] for name, values in infos.items() if values[number] is not None}
        for number in range(len(uids))
    ]
    causes = [cause_of(info, float(info.get("reward", 0.0))) for info in samples]
    blanked = {
        name: values
        if name == FAILED or name.startswith(CAUSE_PREFIX)
        else [None if cause else value for value, cause in zip(values, causes, strict=True)]
        for name, values in infos.items()
    }
    lost = Counter(
        (str(source), str(uid)) for source, uid, cause in zip(data_sources, uids, causes, strict=True) if cause
    )
    left = {name: count - lost[name] for name, count in expected.items()} if expected else expected
    metrics: dict[str, float] = {}
    for source in dict.fromkeys(map(str, data_sources)):
        tally = tally_of(cause for name, cause in zip(data_sources, causes, strict=True) if str(name) == source)
        metrics[f"val-aux/{source}/{FAILED}/sum"] = float(tally.failed)
        metrics |= {f"val-aux/{source}/{CAUSE_PREFIX}{cause}/sum": float(n) for cause, n in tally.causes.items()}
    return blanked, left, metrics, tally_of(causes)
