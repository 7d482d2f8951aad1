"""Compile the mention lexicon (`lexicon.json`) and the cue lists (`cues.json`).

All patterns work on the form made by `prepare`: lower case, "-" read as a space (a bullet as ";"), same length as the
sentence, so that spans can be shown in the original text. Gaps are bounded, so matching is linear in the length of the
sentence.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

OTHER = "other"  # the label of abnormal words that only speak against "No Finding"
_KEY = 3
_BULLET = re.compile(r"(?<= )-(?= [A-Z][a-z])")
_WORD = re.compile(r"[a-z]{3,}")


@dataclass(frozen=True)
class Terms:
    """The patterns of one label."""

    core: re.Pattern[str]
    weak: dict[str, re.Pattern[str]]  # "hint" and "denial", where the label has them
    masked: re.Pattern[str] | None
    normal: re.Pattern[str] | None
    benign: re.Pattern[str] | None


@dataclass(frozen=True)
class Lexicon:
    """Everything the labeller knows: terms per label, other abnormal words, normal statements, cues."""

    terms: dict[str, Terms]
    stems: dict[str, list[tuple[str, str]]]  # first three letters -> (stem, label); see `candidates`
    normality: re.Pattern[str]
    cues: dict[str, re.Pattern[str]]  # by kind, in order of priority
    openers: re.Pattern[str]


def prepare(sentence: str) -> str:
    """The sentence as the patterns read it; has the same length, so spans carry over."""
    sentence = _BULLET.sub(";", sentence)
    lowered = sentence.lower()
    if len(lowered) != len(sentence):  # a few letters grow when lower-cased
        lowered = "".join(c.lower() if len(c.lower()) == 1 else c for c in sentence)
    return lowered.replace("-", " ")


@lru_cache(maxsize=1)
def load() -> Lexicon:
    """The compiled lexicon; read once per process."""
    words, cues = _read("lexicon.json"), _read("cues.json")
    terms = {label: _terms(entry) for label, entry in words["labels"].items()}
    terms[OTHER] = _terms({"core": words["other_finding"]})
    stems: dict[str, list[tuple[str, str]]] = {}
    for label, entry in (*words["labels"].items(), (OTHER, {"stems": words["other_finding_stems"]})):
        for stem in entry["stems"]:
            stems.setdefault(stem[:_KEY], []).append((stem, label))
    return Lexicon(
        terms=terms,
        stems=stems,
        normality=_compile(words["normality"]),
        cues={kind: _cue_pattern(patterns) for kind, patterns in cues["cues"].items()},
        openers=re.compile(cues["openers"]),
    )


def candidates(text: str, lexicon: Lexicon) -> set[str]:
    """Labels of which the prepared sentence may hold a term, by how its words begin; most patterns never run."""
    out: set[str] = set()
    for word in _WORD.findall(text):
        for stem, label in lexicon.stems.get(word[:_KEY], ()):
            if word.startswith(stem):
                out.add(label)
    return out


def _terms(entry: dict[str, Any]) -> Terms:
    def optional(key: str) -> re.Pattern[str] | None:
        return _compile(entry[key]) if entry.get(key) else None

    return Terms(
        _compile(entry["core"]),
        {kind: _compile(entry[kind]) for kind in ("hint", "denial") if entry.get(kind)},
        optional("not"),
        optional("normal"),
        optional("benign"),
    )


def _compile(patterns: list[str]) -> re.Pattern[str]:
    expanded = (re.sub(r"<(\+?)(\d)>", _gap, p) for p in patterns)
    return re.compile(r"(?<!\w)(?:" + "|".join(expanded) + r")(?!\w)")


def _cue_pattern(patterns: list[str]) -> re.Pattern[str]:
    # One pattern per kind: the engine skips alternatives by their first letter only where no group opens before them.
    words = "|".join(p for p in patterns if not p.startswith("@"))
    signs = "".join(f"|{p[1:]}" for p in patterns if p.startswith("@"))
    return re.compile(rf"(?:(?<!\w)(?:{words}){signs})(?![a-z])" if signs else rf"(?<!\w)(?:{words})(?![a-z])")


def _gap(m: re.Match[str]) -> str:
    word = r"(?: [\w/,]+)" if m[1] else r"(?:[\w/,]+ )"
    return f"{word}{{0,{m[2]}}}"


def _read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files("radverl.chexpert").joinpath(name).read_text(encoding="utf-8"))
    return data
