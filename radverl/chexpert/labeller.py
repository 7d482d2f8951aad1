"""Label a chest X-ray report with the 14 CheXpert labels, by rules (conventions of Irvin et al., arXiv 1901.07031).

Three steps, as in that paper: mentions (`lexicon.json`), their status (`scope.py`), and aggregation over the report:
present beats uncertain beats absent. Ours: words that only raise a finding ("infection" for Pneumonia, "borderline
heart size" for Cardiomegaly) are uncertain where they are stated, and are dropped where they are themselves doubted or
the finding is denied; "vascular congestion" is an abnormality outside the 14, its absence is the absence of Edema.
"No Finding" is 1 or None: 1 where nothing but Support Devices is present or uncertain, no other abnormality is named
("scoliosis"), and the text says something about a chest image at all - an empty or senseless text is not normal.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from radverl.chexpert.lexicon import OTHER, Lexicon, Terms, candidates, load, prepare
from radverl.chexpert.scope import ABSENT, PRESENT, UNCERTAIN, Cue, alternatives, find_cues, judge
from radverl.labels import CHEXPERT_14, NO_FINDING, SUPPORT_DEVICES, Labels, has_finding
from radverl.text.normal import plain
from radverl.text.sections import split_sections
from radverl.text.sentences import split_sentences

# No report is this long; what comes after is not read, so that a runaway text costs a bounded time.
MAX_CHARS = 100_000
_MAX_SENTENCE = 600
_OFFERED = re.compile(r"\b(?:versus|vs|or|may|might|could|possibly)\b")
_RANK = {PRESENT: 3, UNCERTAIN: 2, ABSENT: 1}


@dataclass(frozen=True)
class Mention:
    """One reading of one span. `label` is a CheXpert label, or "other" for an abnormality outside the 14."""

    label: str
    status: int
    start: int
    end: int
    cue: str
    kind: str  # core | hint | denial | normal


@dataclass(frozen=True)
class Evidence:
    """A mention with its sentence, as `explain` gives it; text == sentence[start:end]."""

    label: str
    status: int
    sentence: str
    start: int
    end: int
    cue: str
    kind: str

    @property
    def text(self) -> str:
        """The words that were matched."""
        return self.sentence[self.start : self.end]


def label_report(text: str) -> Labels:
    """Labels of a report: all 14 names -> 1 present, 0 absent, -1 uncertain, None not mentioned.

    Args:
        text: a whole report (findings and impression are read, the other sections are not) or plain text. The first
            100,000 characters count.
    """
    read = [read_sentence(s) for s in reported_sentences(text)]
    mentions = _drop_hints([m for ms, _ in read for m in ms])
    labels: Labels = dict.fromkeys(CHEXPERT_14)
    other = False
    for m in mentions:
        if m.label == OTHER:
            other = other or m.status != ABSENT
            continue
        old = labels[m.label]
        if old is None or _RANK[m.status] > _RANK[old]:
            labels[m.label] = m.status
    if not other and not has_finding(labels):
        content = any(m.label != OTHER for m in mentions) or any(normal for _, normal in read)
        labels[NO_FINDING] = PRESENT if content else None
    return labels


def explain(text: str) -> list[Evidence]:
    """Every mention behind the labels of `label_report`, in reading order, with its span and the cue that decided it.

    Mentions that were dropped (masked, history, benign) are not listed; label "other" marks abnormal words that only
    speak against "No Finding".
    """
    pairs = [(s, m) for s in reported_sentences(text) for m in read_sentence(s)[0]]
    kept = set(map(id, _drop_hints([m for _, m in pairs])))
    return [Evidence(m.label, m.status, s, m.start, m.end, m.cue, m.kind) for s, m in pairs if id(m) in kept]


def has_clinical_content(text: str) -> bool:
    """Whether the text names any finding, device or normal chest statement; False for empty and senseless text."""
    return any(mentions or normal for mentions, normal in map(read_sentence, reported_sentences(text)))


def reported_sentences(text: str) -> list[str]:
    """The sentences of findings and impression, or of the whole text where it has no such sections.

    Of a text with headers but without findings and impression only what stands before the first header is read (an
    indication says what was asked).
    """
    clean = plain(text[:MAX_CHARS])
    if ":" in clean or "\n" in clean:
        sections = split_sections(clean)
        # Some reports have their findings before the first header.
        opening = "findings" if "findings" in sections else "preamble"
        clean = "\n\n".join(sections[name] for name in (opening, "impression") if name in sections)
    out: list[str] = []
    for sentence in split_sentences(clean):
        out.extend([sentence] if len(sentence) <= _MAX_SENTENCE else _pieces(sentence))
    return out


def _pieces(sentence: str) -> list[str]:
    """Cut a runaway sentence at spaces, so that the work stays linear."""
    out, start = [], 0
    while start < len(sentence):
        end = start + _MAX_SENTENCE
        cut = sentence.rfind(" ", start + 1, end) if end < len(sentence) else len(sentence)
        cut = cut if cut > start else end
        out.append(sentence[start:cut].strip())
        start = cut
    return [piece for piece in out if piece]


@lru_cache(maxsize=16384)
def read_sentence(sentence: str) -> tuple[tuple[Mention, ...], bool]:
    """(mentions, whether the sentence says something about a chest image being normal or unchanged)."""
    lexicon = load()
    text = prepare(sentence)
    mentions: list[Mention] = []
    labels = candidates(text, lexicon)
    if labels:
        mentions = _mentions(text, labels, lexicon)
    return tuple(mentions), bool(mentions) or lexicon.normality.search(text) is not None


def _mentions(text: str, labels: set[str], lexicon: Lexicon) -> list[Mention]:
    terms = {label: t for label, t in lexicon.terms.items() if label in labels}
    raw = [(label, *span) for label, t in terms.items() for span in _spans(text, t)]
    out: list[Mention] = []
    if raw:
        raw.sort(key=lambda r: r[1])
        cues = find_cues(text, lexicon)
        for label, start, end, kind in raw:
            status, cue = judge(text, start, end, cues, lexicon)
            if status is None:
                continue
            if (kind == "hint" and status == UNCERTAIN) or (kind == "denial" and status != ABSENT):
                label = OTHER  # too little for the label, too much for "No Finding"
            elif kind == "hint" and status == PRESENT:
                status, cue = UNCERTAIN, "hint"
            elif label == "Lung Lesion" and status != ABSENT:
                benign = _benign(text, start, end, terms[label])
                if benign == PRESENT:
                    continue
                if benign == UNCERTAIN and status == PRESENT:
                    status, cue = UNCERTAIN, "benign?"
            out.append(Mention(label, status, start, end, cue, kind))
        out = _doubt_alternatives(text, out, cues)
    named = {m.label for m in out}
    for label, t in terms.items():
        if t.normal and label not in named:
            m = t.normal.search(text)
            if m:
                out.append(Mention(label, ABSENT, m.start(), m.end(), "normal statement", "normal"))
    return out


def _spans(text: str, terms: Terms) -> list[tuple[int, int, str]]:
    """Spans of weak and core terms that do not begin inside a `not` span; a weak one hides the core terms inside it."""
    core = [m.span() for m in terms.core.finditer(text)]
    weak = [(*m.span(), kind) for kind, pattern in terms.weak.items() for m in pattern.finditer(text)]
    if not core and not weak:
        return []
    masks = [m.span() for m in terms.masked.finditer(text)] if terms.masked else []
    hidden = [(a, b) for a, b, _ in weak]
    kept = [(a, b, kind) for a, b, kind in weak if not _inside(a, masks)]
    kept += [(a, b, "core") for a, b in core if not _inside(a, masks) and not _inside(a, hidden)]
    return sorted(kept)


def _inside(start: int, spans: list[tuple[int, int]]) -> bool:
    return any(a <= start < b for a, b in spans)


def _benign(text: str, start: int, end: int, terms: Terms) -> int:
    """Whether the sentence calls a nodule a vessel, a nipple shadow, ...: PRESENT (no lesion then), UNCERTAIN where it
    only offers that reading ("nodule versus vessel on end"), ABSENT where it does not."""
    if terms.benign is None or "nodul" not in text[start:end]:
        return ABSENT
    m = terms.benign.search(text, max(0, start - 60), min(len(text), end + 80))
    if m is None:
        return ABSENT
    return UNCERTAIN if _OFFERED.search(text, min(m.start(), end), max(m.end(), start)) else PRESENT


def _doubt_alternatives(text: str, mentions: list[Mention], cues: list[Cue]) -> list[Mention]:
    findings = [i for i, m in enumerate(mentions) if m.label not in (OTHER, SUPPORT_DEVICES)]
    doubted = alternatives(text, [(mentions[i].start, mentions[i].end) for i in findings], cues)
    labels = {mentions[findings[i]].label for i in doubted}
    for i in doubted if len(labels) > 1 else ():
        m = mentions[findings[i]]
        if m.status == PRESENT:
            mentions[findings[i]] = Mention(m.label, UNCERTAIN, m.start, m.end, "or", m.kind)
    return mentions


def _drop_hints(mentions: list[Mention]) -> list[Mention]:
    denied = {m.label for m in mentions if m.kind == "core" and m.status == ABSENT}
    return [m for m in mentions if not (m.kind == "hint" and m.status == UNCERTAIN and m.label in denied)]


def forget() -> None:
    """Empty the sentence cache (for time measurements and long-running processes)."""
    read_sentence.cache_clear()
