"""Patterns of `radverl.text.priors`: how reports name a prior study, what looks like it, and what has gone.

While comparisons are cut, one private-use character stands for each prior study (`STUDY_0` on: "the prior study of "
"___")
and each bare date (`DATE_0` on: "___"); another (`LEAVE_0` on) for a phrase to leave alone ("hemodynamically stable").
Repetitions are bounded, so that the time stays linear. Case does not matter.
"""

import re

from radverl.text.prior_words import ADVERB, FINITE, Rule, compiled, roots, rule

STUDY_0, DATE_0, LEAVE_0, MANY = 0xE000, 0xE040, 0xE080, 64  # the first of each kind, and how many there are
MASKS = re.compile("[\ue000-\ue0bf]")
_STUDY = "[\ue000-\ue03f]"
_ANY = "[\ue000-\ue07f]"
_REF = (
    r"(?:(?:that|those|the (?:findings|appearance|one))(?: seen)?(?: of| on| from| in)? )?"
    rf"{_ANY}(?:(?:,? and(?: on)?|,? or|,|,? most recently|,? at)? {_ANY}){{0,5}}"
)


# ---- a prior study ----
_MONTH = (
    r"(?:(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov"
    r"(?:ember)?|dec(?:ember)?)\b\.?|may(?= \d))"
)
_ONE_DATE = (
    r"(?:_{2,}(?:[-/ ]_{2,}){0,4}|xxxx|\[[^\]]{1,40}\]|\d{1,4}[-/]\d{1,2}(?:[-/]\d{2,4})?(?! ?(?:mm|cm))"
    rf"|\b{_MONTH}(?: \d{{1,2}}(?:st|nd|rd|th)?)?(?:,? \d{{4}})?(?!\w)|(?:19|20)\d\d\b)"
)
_CLOCK = r"(?:,? ?(?:at|@)? ?(?:\d{1,2}:\d\d|\d{3,4}(?= ?h)|_{2,}|xxxx)(?: ?(?:[ap]\.?m\b\.?|hours|hrs))?)"
_DATE = rf"(?:{_ONE_DATE}{_CLOCK}?(?: (?:and|through|to) {_ONE_DATE}{_CLOCK}?){{0,4}})"
_N = r"(?:a|an|one|two|three|four|five|six|several|few|\d{1,3}|_{2,}|xxxx)"
_UNIT = r"(?:minute|hour|day|week|month|year)s?"
_AGO = (
    rf"(?:yesterday|(?:approximately |about |only )?{_N} {_UNIT} (?:prior|ago|earlier|before|previously)"
    r"|the (?:day|night) (?:before|prior)|earlier (?:today|(?:(?:on|in|that|this|the|same) ){0,4}(?:day|date|morning"
    r"|evening))|(?:the )?same (?:day|date)|this (?:date|day)|this morning|that time|admission)"
)
_IMAGE = (
    r"(?:stud(?:y|ies)|exam(?:ination)?s?|radiograph(?:s|y)?|x-?rays?|films?|cxrs?|cts?|scans?|mri|images?|imaging"
    r"|tracings?|reports?|views?|chest(?= ?(?:[.,;:]|$|on|of|from|dated))|(?:computed )?tomogra(?:ms?|phy)|priors?)\b"
)
_KIND = (
    r"(?:(?:chest|portable|frontal|lateral|ap|pa|and|supine|upright|semi-?upright|bedside|single|two|view|plain"
    r"|abdominal|ct|pet|mr|cervical|thoracic|spine|digital|outside|screening|radiographic|same-day|scout|abdomen|rib"
    r"|of the|x-ray|xxxx|computed) )"
)
_WHICH = r"(?:(?:the|an?|any|these|those|his|her|this|that|both|multiple|several|numerous|the patient's) )"
_PRIOR = (
    r"(?:(?:prior|previous|earlier|(?:most )?recent|last|comparison|preceding|old|older|outside|initial|baseline"
    r"|available|preoperative|remote|immediate(?:ly)?|multiple) (?:and )?)"
)
_DATED = (
    r"(?:,? ?\(?(?:(?:of|from|dated|dating|on|in|performed|obtained|done|taken|made|at|the|back to|as recently as) "
    r"){0,5}"
    rf"(?:{_DATE}|{_AGO}|earlier(?= ?(?:[.,;:)]|$)))\)?)"
)
_END = (
    r"(?=\s?(?:[.,;:)]|$|(?:and|or|with|without|but|in|on|at|there|the|an?|no|is|are|was|were|has|have|had|show\w*"
    r"|reveal\w*|demonstrat\w*|which|while|although|given|by|for|likely|consistent|compatible|suggest\w*|due|may|as"
    r"|again|lungs?|heart|cardiac|mild|moderate|small|large|new|overlying|bilateral|left|right|bibasilar)\b))"
)
# Only where one of these stands is a study or a date looked for.
NAMES_STUDY = roots(
    "prior previous compar earlier before recent last preced baseline initial outside yesterday ago old"
)
DATED = compiled(r"\d|__|xxxx|\[|same|this d|morning|admission|that time")
PRIOR_STUDY = compiled(
    rf"\b(?:{_WHICH}{{0,2}}{_PRIOR}{{1,4}}{_KIND}{{0,4}}(?:{_IMAGE}|ones?\b|(?<!old )xxxx\b)(?: (?:of|and) (?:the "
    rf")?chest)?{_DATED}{{0,3}}|(?:the )?(?:{_DATE} )?(?:priors?|previous|before|(?<!in )(?<!by )(?<!for )comparison"
    rf"|previously(?=\s?(?:[.,;:)]|$|(?:and|but|with)\b))){_DATED}{{0,2}}{_END}|{_WHICH}?{_KIND}{{0,4}}{_IMAGE}(?: of "
    rf"the chest)?{_DATED}{{1,3}}|(?:the )?(?:(?!xxxx)|(?<=to )|(?<=with )|(?<=since )|(?<=from )|(?<=than )){_DATE} "
    rf"{_KIND}{{0,4}}{_IMAGE})"
)
PRIOR_DATE = compiled(
    r"(?:(?<=since )|(?<=from )|(?<=than )|(?<=with )|(?<=to )|(?<= on )|(?<= of )|(?<=and )|(?<=, )|(?<=over )|(?<=: )"
    rf"|(?<=comparison )|(?<=for )|(?<=least )|(?<= as ))(?:the )?(?:{_DATE}|{_AGO}){_END}"
)

# ---- phrases that only look like references ----
LEAVE: tuple[Rule, ...] = (
    rule("new", r"\bnew(?:ly)?[ -](?:onset|york|england|zealand|mexico|jersey|haven|orleans|born|diagnos\w+|symptoms?"
         r"|fevers?|coughs?|pain|dyspnea|shortness|hypoxia|oxygen|patient|history|complaints?|murmur|leukocytosis"
         r"|chest pain|medications?)\b"),
    rule("stable", r"\b(?:hemodynamically|clinically|medically|neurologically|vitals?|condition) stable\b|\bstable "
         r"(?:condition|vital|patient|angina|for discharge)\b"),
    rule("persist", r"\bpersist(?:ent|ing) (?:left )?(?:superior vena cava|svc|ductus|symptoms?|coughs?|fevers?|pain"
         r"|dyspnea|concern)\b"),
    rule("persist remain continu worsen recur", r"\b(?:symptoms?|concern|fever|cough|suspicion|pain) (?:persists?"
         r"|remains?|continues?|worsens?|recurs?)\b"),
    rule("interval", r"\b(?:short[ -](?:term )?)?interval (?:chest )?(?:follow|imaging|radiograph|repeat|surveillance"
         r"|evaluation|ct\b)|\b(?:\w+[ -])?(?:month|week|day|year|time|pr|qt|regular|short)s?[ -]intervals?\b"),
    rule("resol clear stabil improve chang progress remov growth worsen recurrence", r"\b(?:document|ensure|confirm"
         r"|assess|evaluate|until|establish|exclude|monitor|follow|verify|demonstrate|to|for) (?:for )?(?:(?:the|its"
         r"|their|complete|full|interval|any) ){0,3}(?:resolution|clearing|clearance|stability|improvement|changes?"
         r"|progression|removal|growth|worsening|recurrence)\b(?: of [\w ]{1,40})?"),
    rule("resolution recurrent", r"\bhigh[ -]resolution\b|\brecurrent (?:laryngeal|aspirations?|infections?|fever"
         r"|admissions?)\b"),
    rule("continued", r"\bcontinued (?:follow|surveillance|attention|monitoring|observation|radiographic|concern)"),
    rule("remain persist again continue", r"\b(?:should|may|will|to|can|could|would|must) (?:remain|persist|again"
         r"|continue)\b"),
    rule("removal placement advancement withdrawal reposition retraction exchange", r"\b(?:recommend|consider|suggest"
         r"|advis|requir)\w* (?:\w+ ){0,3}(?:removal|placement|advancement|withdrawal|repositioning|retraction"
         r"|exchange)\b"),
    rule("change difference alteration", r"\b(?:changes?|differences?|alterations?) in (?:the )?(?:patient|position"
         r"|technique|projection|rotation|inspiration)\w*(?: of (?:the )?patient\b| position\w*)?(?! of)|\bchange of "
         r"position\b"),
)  # fmt: skip
# A sentence about whom the result was told, or about a condition ("if symptoms persist"), is left alone.
ASIDE = compiled(
    r"^if\b|\b(?:discuss|communicat|convey|relay|telephon|phon|pag|notif|inform|call|report)\w*\b.{0,120}\b(?:dr|doctor"
    r"|nurse|team|physician|resident|telephone|phone|page|pager|np|md|icu)\b"
)

# ---- comparisons, cut out where they stand ----
_SEEN = (
    r"(?:seen|noted|present|identified|visuali[sz]ed|described|demonstrated|evident|apparent|appreciated|shown"
    r"|documented|visible|imaged|characterized|evaluated|assessed|included|suspected|questioned)"
)
_IS = r"(?:is|are|was|were|has been|have been)"


def _comma(match: re.Match[str]) -> str:
    """A cut leaves a comma where one stood on both sides and no verb follows, or only behind; none at the start."""
    rest = match.string[match.end() :].lstrip()
    if not match["b"] or match.start() == 0 or not rest:
        return ""
    return "" if match["a"] and FINITE.match(rest) else ","


def _unless_gone(match: re.Match[str]) -> str:
    """ "The previously seen mass is not seen on ___" says what this image lacks, so it stays."""
    gone = " not " in match.group() and "previous" in match.string[: match.start()].lower()
    return match.group() if gone else _comma(match)


TO_STUDY: tuple[Rule, ...] = (
    rule("similar identical comparable equivalent equal as", r"\b(?:similar|identical|comparable|equivalent|equal|as)"
         rf"(?: in \w+(?: and \w+)?)? (?:(?<!as )(?:to|with)|on|in) {_REF}", "unchanged"),
    rule("more less", rf"\b{ADVERB}{{0,2}}(?:more|less) (?=(?:engorged|enlarged|congested|dilated|distended|widened"
         rf"|elevated|(?:prominent|extensive|severe|pronounced|dense|confluent)(?! than))\b[^.;]{{0,80}}\b(?:compar\w+ "
         rf"(?:to|with)|than|since)(?: on)? {_ANY})"),
    rule("than compar since", rf"\b(engorged|enlarged|congested|dilated|distended|widened|elevated) than(?: on)? "
         rf"{_REF}", r"\1"),
    rule("current today", rf"\b(current|today's) (?:or|and|nor) (?:the )?{_STUDY}", r"\1 study"),
    rule("compar", r"^(?:(?:direct|again|as|in|by|with|when|on) ){0,4}(?:compared|comparisons?|comparing)(?: (?:is|was"
         r"|are))?"
         rf"(?: made)?(?: (?:to|with|is|was|of)){{0,2}}:?(?: the| a)? {_REF}(?: (?:is|are|was) made)?[,:]?"
         r"(?: (?:would|may|might|could|can) be (?:most |very )?(?:helpful|useful|of)\b[^.;]*)?(?: (?:shows?"
         r"|demonstrates?|reveals?|it|also)\b){0,2}\s?"),
    rule("compar relat", r"(?P<a>,)? ?\b(?:(?:as|when|again) )?(?:compared|in comparison|by comparison|relative|in "
         r"relation"
         rf"|with comparison|comparison|comparing)(?: made)?(?: (?:to|with)){{1,2}} {_REF}(?P<b>,)?", _comma),
    rule("e", r"(?P<a>,)? ?(?:\b(?:which|that) (?:\w+ly )?)?(?:\b(?:does|do|did) not (?:appear|seem) to be )?"
         rf"(?:\b{_IS} )?(?:\b(?:not|also|better|well|as|best|first|more|readily|[a-z]+ly) ){{0,4}}\b{_SEEN}(?: (?:on"
         rf"|in|by|at|since|from) {_REF}| {_STUDY})(?P<b>,)?", _unless_gone),
    rule("as unlike since back", rf"(?P<a>,)? ?\b(?:as of|unlike(?: on)?|(?:ever )?since(?: at least)?|as|(?:dating"
         rf"|going) back to|as far back as) {_REF}(?P<b>,)?", _comma),
    rule("than from", r"(?P<a>,)? ?(?:\b(?:which|that) )?"
         rf"(?:\b(?:is|are|appears?) )?{ADVERB}{{0,3}}\b(?:(?:more|less)(?: \w+)?|larger|smaller|greater|lower|worse"
         rf"|better|higher|denser|different)(?: in \w+)? (?:than|from)(?: (?:on|in|at|seen)){{0,2}} {_REF}"
         rf"(?P<b>,)?", _comma),
    rule("chang stabl improv wors progress creas differ alter new enlarg resolv better", r"\b(?:changed|stable|improved"
         r"|improving|worse|worsened|progressed|increased|decreased|increasing|decreasing|different|altered|new"
         r"|enlarged|better"
         rf"|unchanged)(?: in \w+(?: and \w+)?)? (?:from|since|over|on|with|to|than|as of|at)(?: at least)? "
         rf"{_REF}", "unchanged"),
    rule("chang improv wors progress crease differ", r"\b(changes?|improvement|worsening|progression|(?:in|de)crease"
         r"|difference)"
         rf"((?: in [\w ]{{1,60}}?)?),? (?:from|since|over|on|as of|with) {_REF}", r"\1\2"),
    rule("from than over on", rf"(?P<a>,)?(?!^) ?\b(?:from|than|over|on) {_STUDY}(?P<b>,)?", _comma),
)  # fmt: skip
TO_PAST: tuple[Rule, ...] = (
    rule("interval interim", r"(?P<a>,)? ?\b(?:in|over|during|since) (?:the )?(?:short |recent )?inter(?:val|im)\b(?! "
         r"of)(?P<b>,)?", _comma),
    rule("past last preceding previous", r"(?P<a>,)? ?\b(?:over|in|within|during) the (?:past|last|preceding|previous) "
         rf"(?:{_N} )?{_UNIT}\b(?P<b>,)?", _comma),
    rule("previously before", rf"(?P<a>,)? ?\b(?:(?:as )?{_SEEN} (?:previously|before)|(?:as|than|from) previously "
         rf"{_SEEN})\b"
         r"(?P<b>,)?", _comma),
    rule("previously formerly was vs versus", r"(?P<a>,)? ?\(?\b(?:previously|formerly|was|vs\.?|versus)(?: "
         r"(?:measur\w+|was|about|approximately)){0,2} \d[\d.]* ?(?:(?:x|by) [\d.]+ ?){0,2}(?:cm|mm)\b(?: (?:previously"
         r"|before|earlier))?\)?(?P<b>,)?(?=\s?(?:[.,;)]|$|and|in|with|is|are))", _comma),
    rule("previously", r"(?P<a>,)? ?\(?\bpreviously (?:small|mild|moderate|large|minimal|trace|normal|clear"
         r"|severe)\b\)?(?P<b>,)?(?=\s?(?:[.,;)]|$|is|are|and|now))", _comma),
    rule("as is", r"\b(unchanged|stable|similar)( position| location)?,? as (?:is|are) (?=the\b|an?\b)", r"\1\2 and "),
    rule("without absence lack", rf"^(?:without|in the absence of|given (?:the )?(?:lack|absence) of) (?:an? |any |the "
         rf")?(?:{_STUDY}|prior"
         r"|comparison)s?(?: for comparison| available)*, "),
    rule("comparison available", r"(?P<a>,)? ?\b(?:in the absence of|given (?:the )?(?:lack|absence) of|(?:(?:as|since"
         r"|because) )?(?:there (?:is|are) )?(?:without|no)) "
         rf"(?:(?:any|relevant|recent) ){{0,3}}(?:{_STUDY}|(?:prior|previous|comparison)s?)(?: (?:available|for "
         rf"comparison|is"
         r"|are)){1,3}(?P<b>,)?", _comma),
    rule("compared", rf"(?P<a>,)? ?\b(?:as |when )?compared (?:to|with) (?:the |a )?{_KIND}{{0,3}}{_IMAGE}"
         rf"(?P<b>,)?", _comma),
    rule("no new", r"(?P<a>,)? ?\b(?:and )?no (?:significant )?new (?:findings?|abnormalit(?:y|ies)|issues?|disease"
         r"|process)\b(?P<b>,)?",
         _comma),
    rule("but and yet", rf"\b(increased|decreased|improved|worsened|resolved|cleared|unchanged|stable)((?: \w+ly)?) (on"
         rf"|in|at) the ([\w ]{{1,30}}?),? (?:but|and) (?:(?:is|are|has|have|been) ){{0,2}}{ADVERB}?(?:increased"
         rf"|decreased|improved|worsened"
         r"|unchanged|stable|larger|smaller) (?=(?:on|in|at) )", r"\1\2 \3 the \4 and "),
    rule("but and yet", rf"\b(is|are|remains?|appears?) {ADVERB}{{0,2}}(?:smaller|larger|improved|decreased|increased"
         rf"|better|worse|stable"
         r"|unchanged),? (?:but|yet|and) (?:is |are )?(?:still |now )?(?=(?:present|small|mild|moderate|large"
         r"|visible)\b)", r"\1 "),
    rule("but yet", r"\b(small|tiny|trace|minimal|mild|moderate|large|severe) (?:but|yet) (?:\w+ly )?(?:stable"
         r"|unchanged|increasing|decreasing|persistent|improving|improved|worsening) (?=\w)", r"\1 "),
)  # fmt: skip
# Nothing is left of these: before and after the cuts.
NOTHING_TO_COMPARE = compiled(
    rf"^(?:(?:on|in) {_STUDY}(?!.*\b(?:now|current\w*|today\w*)\b)|correlation with (?:{_STUDY}|prior|previous|old)|"
    rf"(?:the )?{_STUDY}(?: (?:is|are|was|were|has|had|show\w*|demonstrated|revealed)\b|:|$)|(?:there (?:is|are|were) "
    rf")?(?:no|none|unavailable)\b.{{0,60}}\b(?:for (?:direct )?comparison|available)$"
    r"|no (?:\w+ )?(?:films?|stud(?:y|ies)|exams?|images?|radiographs?)\b.{0,60} available\b"
    rf"|none available$|(?:no|without) (?:available )?{_STUDY}[^,]{{0,40}}$|no (?:prior )?comparisons?\b.{{0,25}}$)"
)
ONLY_COMPARISON = compiled(
    r"^(?:(?:direct|the|for|in|with|close|recommend) ){0,4}comparisons?\b(?!.*\b(?:there (?:is|are)|shows?"
    r"|demonstrates?|reveals?|effusions?|pneumo\w+|edema|atelecta\w+|consolidat\w+|opacit\w+|clear|normal|enlarged"
    r"|lungs|hyper\w+|nodul\w+|mass|cardiomegaly|tube|catheter)\b)"
)
