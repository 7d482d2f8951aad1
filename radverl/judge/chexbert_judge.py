"""The judge "chexbert" of the FactS reward: the states of a report are CheXbert's labels of it.

blank -> not mentioned, positive -> entailed, negative -> contradicted; uncertain follows the policy: `ones` entails,
`zeros` and `ignore` say nothing. "No Finding" gives way to any finding stated or suspected, as with every judge.
"""

from collections.abc import Sequence
from typing import Any

from radverl.facts import CONTRADICTED, ENTAILED, NOT_MENTIONED, State
from radverl.judge.chexbert import load_chexbert, normalise
from radverl.judge.facts_judge import UNCERTAIN, map_states
from radverl.labels import CHEXPERT_14, UncertainPolicy, check_policy

SETTINGS = ("checkpoint", "sha256", "tokenizer", "device")
_WORDS = {1: ENTAILED, 0: CONTRADICTED, -1: UNCERTAIN, None: NOT_MENTIONED}


class CheXbertJudge:
    """Implements `radverl.facts.Judge` on a CheXbert checkpoint; all judges of a process share one model.

    Args:
        uncertain: ones | zeros | ignore.
        settings: as of `radverl.judge.chexbert.load_chexbert`.
    Raises:
        ValueError: a setting that is not known, or a checkpoint or tokenizer that cannot be used.
    """

    name = "chexbert"

    def __init__(self, uncertain: UncertainPolicy = "ones", **settings: Any) -> None:
        check_policy(uncertain)
        if unknown := sorted(set(settings) - set(SETTINGS)):
            raise ValueError(f"chexbert: unknown setting {', '.join(unknown)}; it has {', '.join(SETTINGS)}.")
        self.uncertain: UncertainPolicy = uncertain
        self._model = load_chexbert(**settings)

    def states(self, report: str) -> dict[str, State]:
        """All 14 labels -> state of one report; an empty one mentions nothing, whatever the model would say.

        Raises:
            JudgeFailure: invalid, where the model gives no finite number.
        """
        return self.states_batch([report])[0]

    def states_batch(self, reports: Sequence[str]) -> list[dict[str, State]]:
        """States of many reports, in order."""
        asked = [i for i, report in enumerate(reports) if normalise(report)]
        out: list[dict[str, State]] = [dict.fromkeys(CHEXPERT_14, NOT_MENTIONED) for _ in reports]
        for i, labels in zip(asked, self._model.labels([reports[i] for i in asked]), strict=True):
            out[i] = map_states({name: _WORDS[value] for name, value in labels.items()}, self.uncertain)
        return out
