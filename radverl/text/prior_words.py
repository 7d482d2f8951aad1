"""Words of reports for `radverl.text.priors`, and the rules of its pattern modules. Case does not matter."""

import re
from collections.abc import Callable, Sequence

Replacement = str | Callable[[re.Match[str]], str]
Rule = tuple[tuple[str, ...], re.Pattern[str], Replacement]


def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def roots(words: str) -> tuple[str, ...]:
    return tuple(words.split())


def rule(tried_with: str, pattern: str, replacement: Replacement = "") -> Rule:
    """A rule that is tried where one of the roots `tried_with` (lower case, between spaces) stands in the text."""
    return roots(tried_with), compiled(pattern), replacement


def apply_rules(rules: Sequence[Rule], text: str) -> str:
    lowered = text.lower()
    for tried_with, pattern, replacement in rules:
        for root in tried_with:
            if root in lowered:
                text = pattern.sub(replacement, text)
                break
    return text


def has(text: str, any_of: Sequence[str]) -> bool:
    """True where one of the roots stands in the text."""
    lowered = text.lower()
    return any(root in lowered for root in any_of)


_LY = (  # how much or how surely; not how or where ("diffusely", "bilaterally")
    r"(?:(?:slight|mild|minimal|marked|significant|substantial|gross|essential|relative|large|like|probab|possib"
    r"|moderate|radiographical|considerab|appreciab|general|apparent|near|dramatic|dramatical|partial|interval|clear"
    r"|rough|approximate|gradual|progressive|subt|convincing|definite|notab|complete|entire|ful|subsequent|most|great"
    r"|recent|questionab|overal|mere|similar|visib|virtual|rapid|previous|severe|on|new)ly|likewise)"
)
ADVERB = (
    rf"(?:(?:{_LY}|again|otherwise|also|now|all|both|very|almost|further|slight|not|interval|much|a little|a bit|yet"
    rf"|since|still"
    r"|somewhat|overall|since then|well) )"
)
DO_NOT_CROSS = r"(?:without|no|but|which|that|is|are|with|and|of|in|or|from|the|by|to|at|due|on)"
# ---- what has gone ----
FINITE = compiled(
    r"\b(?:is|are|was|were|has|have|had|remains?|persists?|appears?|shows?|demonstrates?|terminates?|ends|projects|lies"
    r"|extends?|may|represents?|continues?|seen|noted|suggests?|overlies|reaches|measures?|can|could|resides?|courses?"
    r"|indicates?)\b"
)
GONE_ROOTS = (
    "resol",
    "remov",
    "clear",
    "extubat",
    "disappear",
    "discontinu",
    "explant",
    "withdrawn",
    "no longer",
    "decannul",
)
GONE = compiled(
    r"\b(?:has|have|had|is|are|was|were)(?: (?:since|now|been|both|all|also|then|interval|otherwise|\w+ly)){0,4} "
    r"(?:resolved|removed|cleared|extubated|disappeared|discontinued|explanted|withdrawn(?! (?:by|to|into|and|slightly"
    r"|with|approximately|about|\d)))\b|\bno longer (?:\w+ )?(?:seen|present|visuali[sz]ed|identified|evident|visible"
    r"|apparent|appreciated|noted|demonstrated|detected|in place|exists?)\b|(?:^|(?<=[,;] )|\b(?:and|with|without|after"
    r"|following|status post|s/p|post|since|there (?:is|has been|have been)|is|are|was|were|has been|have been) )"
    r"(?:the |an? |there has been )?(?:(?:interval|complete|recent|near|subsequent|essentially|patient) ){0,3}"
    r"(?:removal|extubation|decannulation|(?:resolution|disappearance|clearing|clearance|discontinuation)(?= of\b|$|,))"
    r"|\b(?:status post|s/p|following|after|post) (?:(?:the|recent|interval) ){0,2}(?:[\w-]+ ){1,5}(?:removal"
    r"|extubation)\b|^(?:(?:interval|intervally|now|completely) ){0,2}(?:resolved|cleared|removed)(?= \w)|^(?:[\w-]+ "
    r"){1,5}(?:removal|extubated|(?<!not )removed|(?<!not )resolved)$|^(?:[\w-]+ ){1,5}(?:removal|extubation)(?= with| "
    r"without|,)"
)
NOT_GONE = compiled(
    r"\b(?:not|nearly|almost|partially|largely|partly|incompletely|mostly|slightly|somewhat|near|partial|incomplete"
    r"|some|mild|minimal|moderate|substantial|no|slight|near-complete|further|mildly|significantly|substantially"
    r"|minimally|yet)(?: (?:been|complete|completely|entirely|fully|yet|interval|significant|definite|evidence of"
    r"|further)){0,3} (?:resol|clear|remov)|\b(?:has|have) cleared (?:slightly|somewhat|partially)"
)
CUE = compiled(
    r"(?:and |with )?(?:there|no|not|new|newly|persistent|stable|unchanged|improv\w+|worse\w*|increas\w+|decreas\w+"
    r"|interval|placement|insertion|replacement|replaced|development|small|tiny|trace|minimal|mild|moderate|large|low"
    r"|residual|again|continued|slight|possible|probable|likely|which|now|otherwise|subsequent|patchy|bibasilar"
    r"|evidence|without|the lungs)\b"
)

# Words that say nothing about the image when nothing else is left of a changed clause.
PLACE = frozenset(
    roots(
        """upper lower mid middle left right bilateral lobe lobes base bases basilar bibasilar apex apices zone zones
        region area field side sided hemithorax"""
    )
)
NEUTRAL = PLACE | frozenset(
    roots(
        """the a an of in and or nor to is are was were with at on for by from this that these those it its their there
        has have been be as since also all any both some other others otherwise which again no not without but
        however although though while heart cardiac cardiomediastinal cardiomediastinum musculoskeletal airway
        airways cardiopulmonary cardiovascular mediastinal mediastinum silhouette silhouettes size sizes
        contour contours hilar hila hilum pulmonary vasculature vascularity vascular vessels lung lungs volume
        volumes aeration inflation inspiration inspiratory effort bony osseous bone bones structure structures
        skeleton skeletal thorax thoracic spine rib ribs cage soft tissue tissues chest exam examination study
        studies radiograph radiographs radiographic film films appearance appearances configuration position
        positioning finding findings remainder remaining rest status aorta aortic knob diaphragm diaphragms
        hemidiaphragm hemidiaphragms trachea pleura pleural surface surfaces space spaces areas regions fields
        abdomen view views ap pa frontal lateral portable image images technique patient patient's visualized
        visualised limited evaluation overall change changes interval significant relevant extent degree
        severity evidence acute now had given parenchymal parenchyma tip tips improvement prior previous
        comparison bilaterally parameters system pattern shows show demonstrates demonstrate report current
        today's today assessment definite appreciable unchanged stable improved worse worsened
        radiographically grossly essentially within during over here would could may appears appear seen noted"""
    )
)
# A sentence without any of these is left as it is.
_SEEN_ON = ("seen on ", "present on ", "noted on ")
SUSPECT = _SEEN_ON + roots(
    """prior previous earlier compar since interval interim chang stable stabil improv worse creas new persist remain
    again progress resol remov longer demonstrat residual recur exist enlarg diminish similar last past withdraw
    cleared clearing yesterday extubat continu before placement evol static constant same lower larger smaller
    develop accumul intubated advanc reposition exchang replac received still better regress dimin formerly now
    less grown disappear retract reduc pulled than unlike been"""
)
