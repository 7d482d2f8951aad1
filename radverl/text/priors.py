"""Remove references to prior studies from a report, by rules, keeping the findings.

A single image cannot show change, so a model trained to say "unchanged" learns to invent a prior study. Sentences that
only compare are dropped; in the others the comparing words go ("unchanged small left effusion" -> "small left
effusion"). Removed devices and resolved findings are statements about the past and are dropped. English only.
"""

import re
from functools import lru_cache

from radverl.text.sentences import split_sentences

_STUDY = (
    r"(?:stud(?:y|ies)|exam(?:ination)?s?|(?:chest )?(?:radiographs?|x-?rays?|films?|cts?)|images?|imaging"
    r"|priors?|one|tracings?|reports?)"
)
_PRIOR = r"(?:prior|previous|earlier|most recent|last|comparison|preceding|old)"
_DATE = r"(?:___|xxxx|\d{1,4}[/-]\d{1,2}(?:[/-]\d{2,4})?)"
_WHEN = (
    rf"(?:the |a |an |these |his |her )?(?:{_PRIOR}[, ]+){{1,2}}(?:{_STUDY}\b ?){{0,2}}"
    rf"(?:(?: ?(?:of|from|dated|on|performed|obtained|done|the))* ?{_DATE}(?: at {_DATE})?)?|{_DATE}|yesterday"
    rf"|the (?:{_DATE} )?{_STUDY}(?: (?:of|from|dated) {_DATE})"
)
_COMPARED = (
    rf"(?:,? ?(?:as |when |again )?(?:compared|comparison|in comparison|relative|similar)(?: (?:with|to))? (?:{_WHEN})"
    rf"|,? ?(?:since|from|than|over|on|seen on|present on|noted on) (?:{_WHEN})|,? ?(?:in|over) the (?:short )?interval"
    rf"|,? ?(?:since|from) (?:the )?prior\b|,? ?compared (?:to|with) prior)"
)
_CHANGE_ADVERB = (
    r"(?:slightly |mildly |minimally |markedly |significantly |substantially |somewhat |grossly |essentially "
    r"|relatively |overall |largely |again )*"
)
_CHANGE = (
    r"(?:unchanged|stable|improved|worsened|increased|decreased|progressed|resolving|improving|worsening|persistent"
    r"|enlarging|diminished|not (?:significantly |substantially |appreciably )?changed|similar(?: in \w+)?)"
)

# Dropped whole: resolved or removed things, and pure comparisons.
_PAST = re.compile(
    r"\b(?:(?:has|have|had|is|are|was|were)(?: since| now| been| \w+ly| interval)* (?:resolved|removed|withdrawn"
    r"|cleared|extubated)|(?:interval|status post|s/p) (?:removal|resolution|extubation|clearance)|no longer (?:seen"
    r"|present|visuali[sz]ed|identified|evident|visible|apparent)|removal of)\b",
    re.I,
)
_KEPT_PAST = re.compile(
    r"\b(?:not|nearly|almost|partially|largely|partly|incompletely)(?: \w+)? (?:resolved|cleared|removed)\b", re.I
)
_COMPARISON_ONLY = re.compile(
    rf"^(?:\d+\. ?)?(?:(?:in|as) )?(?:comparison|compar\w+|correlation)\b"
    r"(?:(?! there (?:is|are)|, (?:the|a|an|no|new)\b).)*$"
    rf"|^(?:\d+\. ?)?(?:{_COMPARED},? ?)?(?:there (?:is|has been) |overall )?"
    rf"(?:no|little|not much)(?: (?:relevant|significant|interval|substantial|appreciable|other|further|new|acute|major"
    rf"|great|definite))* ?(?:interval )?changes?"
    r"(?: (?:is|are|has been)? ?(?:seen|noted|identified|detected|observed))?"
    rf"(?:{_COMPARED})*\.?$"
    rf"|^(?:\d+\. ?)?(?:(?:the )?(?:chest|exam(?:ination)?|appearance of the chest|study|findings?|radiographs?)"
    rf"(?: (?:is|are|remains?|appears?))* )?(?:{_CHANGE_ADVERB}{_CHANGE})"
    rf"(?: (?:chest|exam|examination|appearance|chest radiograph|appearance of the chest|findings?|study))?"
    rf"(?:{_COMPARED})*\.?$"
    rf"|^(?:\d+\. ?)?(?:{_WHEN}) (?:is|are|was|were) (?:available|reviewed|used)\b.*$",
    re.I,
)
_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = (
    # "As compared to the previous radiograph, ..." and "Since ___, ..."
    (re.compile(rf"^((?:\d+\. ?)?)(?:{_COMPARED})(?: ?,)? ?", re.I), r"\1"),
    (re.compile(rf"(?:{_COMPARED})(?=[\s.,;)]|$)", re.I), ""),
    (re.compile(r"\bno (?:significant |interval |substantial |relevant |appreciable )*changes? (?:in|of) ", re.I), ""),
    (re.compile(r"\b(?:slight |mild |minimal |moderate |marked |significant |continued )*(?:interval )?(?:increase"
                r"|decrease|improvement|worsening|progression|enlargement|change) (?:in|of)(?: the)?(?: size of)?"
                r"(?: the| a)? (?!(?:size|cardiac|heart|the heart)\b)", re.I), ""),
    (re.compile(rf",? ?\b(?:which|that) (?:has|have|is|are)(?: been)? {_CHANGE_ADVERB}{_CHANGE}"
                r"(?: in (?:size|extent|severity|appearance))?", re.I), ""),
    (re.compile(rf" (?:has|have) (?:been )?{_CHANGE_ADVERB}{_CHANGE}(?: in (?:size|extent|severity))?"
                r"(?= ?(?:[.,;]|$| and | with ))", re.I), ""),
    (re.compile(rf" (is|are|remains?|appears?) {_CHANGE_ADVERB}{_CHANGE}(?: in (?:size|extent|severity|appearance"
                r"|position))?(?= ?(?:[.,;]|$))", re.I), ""),
    (re.compile(r"\b(is|are|remains?) again (?=\w)", re.I), r"\1 "),
    (re.compile(r"\b(?:again (?:seen|noted|demonstrated|identified)|redemonstrated|re-demonstrated|re-?demonstration of"
                r"|again) ?(?:is|are)? ?", re.I), ""),
    (re.compile(r"\b(?:previously|prior|newly) (?:seen|noted|described|demonstrated|identified|visuali[sz]ed|reported"
                r"|developed) ", re.I), ""),
    (re.compile(rf", {_CHANGE_ADVERB}(?:unchanged|stable|improved|better|worse|worsened|increased"
                r"|decreased)(?=[.,;]|$| and )", re.I), ""),
    (re.compile(rf"\b{_CHANGE_ADVERB}(?:unchanged|stable|persistent|persisting|new|newly|worsening|worsened|improving"
                r"|improved|increasing|decreasing|enlarging|residual|recurrent|known|preexisting|pre-existing)"
                r"(?: and)? (?!(?:from|since|in|compared|position|than|york)\b)(?=\w)", re.I), ""),
    (re.compile(r"\b(?:remains|continues to be) (?=\w)", re.I), "is "),
    (re.compile(r"\b(?:remain|continue to be) (?=\w)", re.I), "are "),
    (re.compile(r"\b(there|There) (?:has|have) been (?=\w)"), r"\1 is "),
)  # fmt: skip
_SUSPECT = re.compile(
    r"prior|previous|earlier|compar|since|interval|chang|stable|improv|worse|increas|decreas|new|persist|remain|again"
    r"|progress|resol|remov|longer|demonstrat|residual|recurr|known|exist|___|xxxx|enlarging|diminish|similar|last"
    r"|withdraw|clear|recent|yesterday|extubat|continu",
    re.I,
)
_EMPTY = re.compile(
    r"^(?:\d+[.)])?\s*(?:(?:the|a|an|there (?:is|are|has been)|and|with|findings?|exam|of|in|is|are|it|this|these"
    r"|appearance)\b[\s,.]*)*$",
    re.I,
)


def remove_prior_references(text: str) -> str:
    """The report without comparisons, one space between the sentences left; "" where all of it was comparison.

    "No pneumothorax since prior." -> "No pneumothorax."; "Comparison is made to ___." -> dropped.
    """
    return " ".join(kept for sentence in split_sentences(text) if (kept := _rewrite(sentence)))


@lru_cache(maxsize=8192)
def _rewrite(sentence: str) -> str:
    if len(sentence) > 2000 or not _SUSPECT.search(sentence):
        return sentence
    if _COMPARISON_ONLY.match(sentence) or (_PAST.search(sentence) and not _KEPT_PAST.search(sentence)):
        return ""
    out = sentence
    for pattern, replacement in _REWRITES:
        out = pattern.sub(replacement, out)
    out = re.sub(r"\s+([.,;)])", r"\1", re.sub(r"\s+", " ", out)).strip(" ,;")
    out = re.sub(r"\b(?:and|with|but),?(?=\.|$)", "", out).replace(" .", ".")
    if _EMPTY.match(out):
        return ""
    if sentence[:1].isupper() and out[:1].islower():
        out = out[0].upper() + out[1:]
    return out
