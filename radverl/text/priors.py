"""Remove references to prior studies from a report, by rules, keeping the findings. English only. Offline.

A single image cannot show change, so a model trained to say "unchanged" learns to invent a prior study. In order:
  1. Comparisons are cut ("as compared to the study of ___"), phrases that only look like them are left alone
     ("hemodynamically stable", "prior sternotomy", "interval follow-up").
  2. The sentence is split into clauses. A clause about something gone (removed, resolved, no longer seen) is dropped.
  3. Words of change go, the finding stays ("The left effusion has increased and is now large" -> "The left effusion is
     large"), and a clause with nothing left but anatomy ("The cardiac silhouette is stable") is dropped.
  4. "No new consolidation" becomes "No consolidation", or "No other consolidation" where the text has one.
Sentences without a reference keep their bytes, and the white space between kept sentences stays. docs/priors.md has the
measured precision and recall.
"""

import re
from functools import lru_cache

from radverl.text import change_patterns as change
from radverl.text import prior_patterns as prior
from radverl.text import prior_words as vocabulary
from radverl.text.prior_clauses import rewrite_clauses, tidy, words
from radverl.text.sentences import split_sentences

MAX_SENTENCE = 2000  # characters; a longer one is no sentence of a report and is left alone (ours)
_PASSES = 4  # rules make sentences shorter, and settle in two passes

# A list number, "FINAL REPORT" or a header stays in front of what is left.
_NUMBER = r"(?:\d{1,2}[.)]|[-*\u2022]|\(\d{1,2}\))\s+"
_HEADER = r"(?![^:]{0,40}\b(?:compar|prior|since|previous))[A-Za-z][A-Za-z /&()-]{2,40}:\s+"
_PREFIX = vocabulary.compiled(rf"(?:FINAL REPORT\s+)?(?:{_NUMBER}|{_HEADER}){{0,3}}")
_HEADED = vocabulary.compiled(_HEADER)
_SECTION = vocabulary.compiled(
    r"\b(?:impressions?|findings?|conclusions?|opinion|summary|interpretation|report|addendum|wet read|results?)$"
)
_LIST_NUMBER = re.compile(rf"{_NUMBER}$")
_UNCHANGED = vocabulary.compiled(r",? ?\bunchanged\b")
_COMPARISON_HEADER = vocabulary.compiled(r"(?:\d{1,2}[.)]\s+)?comparisons?\b[^:]{0,20}:")
_GLUED_COMPARISON = re.compile(r"^Comparison:? (?:(?:XXXX|_{2,}),? )+(?=[A-Z][a-z])")
# "no new consolidation": all of it, up to the thing that is not there.
_NO_NEW = vocabulary.compiled(
    r"\b((?:no|not|without|nor|any|neither|denies)\b[^;]{0,200}?) new(?:,? (?:or|and|nor) (?:\w+ )?(?:\w+ing|increased"
    r"|progressive|larger|worsened|enlarged))?(?= [a-z])(?! (?:from|since|in|compared|and|or)\b)"
)
_COMMON = frozenset(
    vocabulary.roots(
        """focal acute right left lung pulmonary evidence upper lower lobe area areas base side chest other small large
        mild definite airspace bilateral parenchymal with from that this seen since identified noted there
        within present"""
    )
)


def remove_prior_references(text: str) -> str:
    """The report without references to prior studies; "" where all of it was comparison.

    "No pneumothorax since prior." -> "No pneumothorax."; "Comparison is made to ___." -> dropped. A list number or
    header of a dropped sentence goes to the next sentence of its item. Text without references stays as it is.
    """
    for _ in range(_PASSES):  # a sentence that went may join those around it
        before, text = text, _without_references(text)
        if text == before:
            break
    return text


def prior_changes(text: str) -> list[tuple[str, str]]:
    """(sentence as `split_sentences` gives it, what is left of it, "" where dropped), in order."""
    sentences = split_sentences(text)
    kept = [_rewrite(sentence) for sentence in sentences]
    present: set[str] | None = None  # the words of the sentences without a negation
    out: list[tuple[str, str]] = []
    pending = ""
    for before, after in zip(sentences, kept, strict=True):
        if _NO_NEW.search(after):
            if present is None:
                present = {word for s in kept if not change.NEGATION.search(s) for word in _stems(s)}
            after = _without_new(after, present)
        prefix = _prefix(before)
        if pending and after:
            if not _HEADED.match(after):
                after = (_LIST_NUMBER.sub("", pending) if prefix else pending) + after
            pending = ""
        if prefix and not after:
            pending = prefix
        out.append((before, after))
    return out


def forget() -> None:
    """Empty the cache of sentences."""
    _rewrite.cache_clear()


def _without_references(text: str) -> str:
    pairs = prior_changes(text)
    if all(before == after for before, after in pairs):
        return text
    out: list[str] = []
    gap, end = "", 0
    for before, after in pairs:
        start, stop = _locate(text, before, end)
        gap = max(gap, text[end:start], key=lambda space: (space.count("\n"), len(space)))
        end = stop
        if after:
            out += [gap if out else "", text[start:stop] if after == before else after]
            gap = ""
    return "".join(out)


def _locate(text: str, sentence: str, start: int) -> tuple[int, int]:
    """Where `sentence`, whose white space was collapsed, stands in `text` at or after `start`."""
    first = end = text.find(sentence.split(maxsplit=1)[0], start)
    for word in sentence.split():
        end = text.find(word, end) + len(word)
    return first, end


def _prefix(sentence: str) -> str:
    match = _PREFIX.match(sentence)
    return match.group() if match else ""


@lru_cache(maxsize=8192)
def _rewrite(sentence: str) -> str:
    for _ in range(_PASSES):
        before, sentence = sentence, _rewrite_once(sentence)
        if sentence == before:
            break
    return sentence


def _rewrite_once(sentence: str) -> str:
    if len(sentence) > MAX_SENTENCE or not vocabulary.has(sentence, vocabulary.SUSPECT) or prior.MASKS.search(sentence):
        return sentence
    if _COMPARISON_HEADER.match(sentence):
        return ""
    sentence = _GLUED_COMPARISON.sub("", sentence)
    prefix = _prefix(sentence)
    body = sentence[len(prefix) :]
    stop = body[len(body.rstrip(".?!: ")) :]
    if not body or prior.ASIDE.search(body):
        return sentence
    body = body[: len(body) - len(stop)]
    masks: dict[str, str] = {}
    left_alone = body
    for roots, pattern, _ in prior.LEAVE:
        if vocabulary.has(left_alone, roots):
            left_alone = _mask(pattern, left_alone, prior.LEAVE_0, masks)
    out = rewrite_clauses(_cut(left_alone))
    if out == left_alone:
        return sentence
    if "unchanged" not in body.lower():  # put for "similar to ___", and not cut
        out = _UNCHANGED.sub("", out)
    out = tidy(_unmask(out, masks))
    if not out:
        head = prefix.rstrip(": ")  # "Left effusion: unchanged." says that there is one
        says = head != prefix.rstrip() and not _SECTION.search(head) and change.BARE.fullmatch(_cut(body))
        return tidy(head) + stop.strip() if says and tidy(head) else ""
    if body.isupper():
        out = out.upper()
    if body[:1].isupper() or prefix:
        out = out[0].upper() + out[1:]
    return prefix + out + stop.strip()


def _mask(pattern: re.Pattern[str], body: str, first: int, masks: dict[str, str]) -> str:
    """Put one private-use character, from `first` on, for each match; `masks` keeps what it stands for."""

    def put(match: re.Match[str]) -> str:
        if len(masks) == prior.MANY:
            return match.group()
        mark = chr(first + len(masks))
        masks[mark] = match.group()
        return mark

    return pattern.sub(put, body)


def _unmask(body: str, masks: dict[str, str]) -> str:
    return prior.MASKS.sub(lambda m: masks.get(m.group(), m.group()), body)


def _cut(body: str) -> str:
    """Cut comparisons with a prior study or date."""
    masks: dict[str, str] = {}
    dated = bool(prior.DATED.search(body))
    if vocabulary.has(body, prior.NAMES_STUDY) or dated:
        body = _mask(prior.PRIOR_STUDY, body, prior.STUDY_0, masks)
    if dated or vocabulary.has(body, prior.NAMES_STUDY):
        body = _mask(prior.PRIOR_DATE, body, prior.DATE_0, masks)
    if prior.NOTHING_TO_COMPARE.match(body):
        return ""
    if masks:
        body = vocabulary.apply_rules(prior.TO_STUDY, body)
    body = vocabulary.apply_rules(prior.TO_PAST, body)
    return "" if prior.ONLY_COMPARISON.match(body) else _unmask(body, masks)


def _without_new(sentence: str, present: set[str]) -> str:
    """ "No new X" -> "No X", or "No other X" where the text also says there is X."""

    def one(match: re.Match[str]) -> str:
        before = _stems(sentence[: match.start()])
        other = any(word in present or word in before for word in _stems(sentence[match.end() :]))
        return match[1] + (" other" if other else "")

    return _NO_NEW.sub(one, sentence)


def _stems(text: str) -> set[str]:
    singular = (w.rstrip("s").removesuffix("ie") for w in words(text) if len(w) > 3 and w not in _COMMON)
    return {w.removesuffix("y") for w in singular} - _COMMON
