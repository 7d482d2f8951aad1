"""Clauses of a sentence for `radverl.text.priors`.

A sentence is split where both sides have a verb of their own; what has gone is dropped, words of change are cut, and a
clause that then only names anatomy is dropped.
"""

import re

from radverl.text import change_patterns as change
from radverl.text import prior_patterns as prior
from radverl.text import prior_words as vocabulary

_PASSES = 4  # things gone in one clause
_BOUNDARY = vocabulary.compiled(
    r"(;\s+|,?\s+(?:but|while|although|though|however,?|whereas)\s+|,\s+(?:and\s+|with\s+|without\s+|now\s+)?|\s+and\s+"
    r"|\.\s+)"
)
_HARD = vocabulary.compiled(r"[;.]|but|while|although|though|however|whereas")
_OR = vocabulary.compiled(r"\bor\b")
_RELATIVE = vocabulary.compiled(r"(?:which|that) ")
_PARTICIPLE = vocabulary.compiled(r"(?:not |\w+ly )*(?:seen|noted)\b")
_VERB_START = vocabulary.compiled(rf"(?:\w+ly )?{vocabulary.FINITE.pattern}")
_AFTER_GONE = vocabulary.compiled(
    rf",?\s+(with|without|leaving)\s+|,?\s+and\s+(?={vocabulary.CUE.pattern})|,\s+(?={vocabulary.CUE.pattern})"
    r"|,?\s+and (?:been )?replaced (?:with|by) "
)
_WITH = vocabulary.compiled(r",? (with|without) ")
_WORD = vocabulary.compiled(r"[a-z0-9'\u0080-\uffff]+(?:[.-][a-z0-9]+)*")
_EMPTY_BRACKETS = re.compile(r"\(\s*\)")
_SPACED = re.compile(r"\s+([.,;:)])")
_COMMAS = re.compile(r"([,;:])(?:\s*[,;:])+")
_LEAD = vocabulary.compiled(r"(?:(?:and|but|with|while|although|though|however|which|showing|otherwise),? )+")
_DANGLING = vocabulary.compiled(r"(?:[,;]? \b(?:and|but|with|while|although|which|that|or|otherwise))+(?=[.,;]|$)")
_SUBJECT_AND = vocabulary.compiled(
    rf"^((?:(?!{vocabulary.FINITE.pattern})[^,;.]){{1,80}}?) (?:and|but) (?={vocabulary.FINITE.pattern})"
)
_CIRCUMSTANCE = vocabulary.compiled(
    r"(?:given|considering|allowing for|accounting for|despite) (?:the )?differences? in (?:\w+ ){0,2}(?:rotation"
    r"|technique"
    r"|positioning|position|inspiration|projection|factors|effort|volumes)"
)


def rewrite_clauses(body: str) -> str:
    """Drop and rewrite clause by clause, and join what is left."""
    out, subject = "", ""
    for gap, clause in _split(body):
        kept = _clause(clause)
        if kept and _VERB_START.match(clause) and not out and gap:
            kept = _clause(f"{subject} {clause}")
        if _RELATIVE.match(clause) and not kept and _is_gone(clause):
            out = ""
        verb = vocabulary.FINITE.search(clause)
        subject = clause[: verb.start()].strip() if verb and verb.start() else subject
        if not kept:
            continue
        if not out:
            out = kept
        elif _VERB_START.match(kept) and not vocabulary.FINITE.search(out):
            out += " " + kept
        elif kept != clause and _negates(out, kept) and not _HARD.search(gap):
            out += "; " + kept
        else:
            out += gap + kept
    return out


def _negates(before: str, clause: str) -> bool:
    """True if "no" would seem to reach into a clause that lost its verb."""
    return bool(
        change.NEGATION.match(before) or (change.NEGATION.search(before) and not vocabulary.FINITE.search(clause))
    )


def _split(body: str) -> list[tuple[str, str]]:
    """Clauses, each with what stands before it. "The heart, lungs and ribs are unchanged" is one clause."""
    parts = _BOUNDARY.split(body)
    out = [("", parts[0])]
    for i in range(1, len(parts), 2):
        gap, part = parts[i], parts[i + 1]
        left = out[-1][1]
        rest = "".join(parts[i + 2 :])
        verb, cue = vocabulary.FINITE.search(part), vocabulary.CUE.match(part) and " " in part
        negated = change.NEGATION.match(left) and not _OR.search(part + rest)
        cuts = (
            _HARD.search(gap)
            or (vocabulary.FINITE.search(left) and (verb or cue or "with" in gap))
            or (_is_gone(left) and (verb or cue))
            or (_is_gone(part) and vocabulary.CUE.match(left))
            or (negated and cue)
        )
        if cuts and part and left and not _PARTICIPLE.match(part):
            out.append((gap, part))
        else:
            out[-1] = (out[-1][0], left + gap + part)
    return out


def _is_gone(clause: str) -> bool:
    return (
        vocabulary.has(clause, vocabulary.GONE_ROOTS)
        and bool(vocabulary.GONE.search(clause))
        and not vocabulary.NOT_GONE.search(clause)
    )


def _clause(clause: str) -> str:
    out = clause.strip()
    if prior.ONLY_COMPARISON.match(out) or change.BARE.fullmatch(out):
        return ""
    for _ in range(_PASSES):
        if not _is_gone(out):
            break
        out = _without_gone(out)
    out = vocabulary.apply_rules(change.REWRITES, out)
    return clause if out == clause.strip() else tidy(_without_bare(out, clause.strip()), clause)


def _without_gone(clause: str) -> str:
    """What a clause says beside the thing that has gone: "tube removed with no pneumothorax" -> "no pneumothorax"."""
    match = vocabulary.GONE.search(clause)
    assert match
    before = (
        ""
        if vocabulary.FINITE.match(match.group()) or match.group().lower().startswith("no longer")
        else clause[: match.start()]
    )
    boundary = _AFTER_GONE.search(clause, match.end())
    rest = clause[boundary.end() :] if boundary else ""
    if boundary and boundary[1] and boundary[1].lower() == "without":
        rest = "no " + rest
    return tidy(", ".join(part for part in (tidy(before), rest) if part))


def tidy(text: str, before: str = "") -> str:
    """Mend commas, spaces and dangling words of what was `before`; "" if nothing is said about the image."""
    text = _SPACED.sub(r"\1", " ".join(_EMPTY_BRACKETS.sub("", text).split()))
    text = _COMMAS.sub(r"\1", text).strip(" ,;:.-")
    lead = _LEAD.match(text)
    if lead and not before.startswith(lead.group()):
        text = text[lead.end() :]
    text = _SUBJECT_AND.sub(r"\1 ", _DANGLING.sub("", text))
    head, joint, tail = _partition_with(text)
    if joint and _is_bare(head) and not vocabulary.PLACE & set(words(head)):
        text = f"no {tail}" if joint == "without" else tail
    return "" if _is_bare(text) or change.BARE.fullmatch(text) or _CIRCUMSTANCE.fullmatch(text) else text


def _without_bare(text: str, clause: str) -> str:
    """Drop parts that lost their words of change and now only name anatomy ("normal heart, stable hilar contours")."""
    before = re.split(r", | with ", clause)
    parts = re.split(r"(, | with )", text)
    bare = [part not in before and _is_bare(part) for part in parts]
    bare[0] = bare[0] and not vocabulary.PLACE & set(words(parts[0]))
    out = "" if bare[0] and not all(bare[::2]) else parts[0]
    for i in range(2, len(parts), 2):
        if not bare[i]:
            out += parts[i - 1] + parts[i] if out else parts[i]
    return out


def _is_bare(text: str) -> bool:
    return all(word in vocabulary.NEUTRAL for word in words(text))


def _partition_with(text: str) -> tuple[str, str, str]:
    match = _WITH.search(text)
    return (text[: match.start()], match[1].lower(), text[match.end() :]) if match else (text, "", "")


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
