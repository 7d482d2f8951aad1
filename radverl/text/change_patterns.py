"""Patterns of `radverl.text.priors`: words of change, and what stays of the finding they speak of.

A rule is (roots, pattern, replacement): it is tried where one of its roots stands in the sentence, which saves most of
the time. Rules run in this order on one clause, after comparisons and past things are cut.
"""

import re

from radverl.text.prior_words import ADVERB, DO_NOT_CROSS, FINITE, Rule, compiled, rule

NEGATION = compiled(r"\b(?:no|not|without|nor|any|neither|denies)\b")
_ADV = f"{ADVERB}{{0,4}}"
_FINDING = (
    r"(?:effusions?|pneumothora(?:x|ces)|edema|consolidations?|atelectasis|congestion|cardiomegaly|pneumonias?"
    r"|infiltrates?|collapse|hemothorax|hydropneumothorax|emphysema|opacit(?:y|ies)|opacifications?|fluid|nodul\w+|mass"
    r"(?:es)?|disease|infection|hematoma|collection|failure|pneumomediastinum|pneumoperitoneum|volume loss|engorgement"
    r"|overload)\b"
)
_LIKE = rf"(?:(?!{DO_NOT_CROSS}\b)[\w/-]+ ){{0,4}}?"  # adjectives before the finding
_PLACED = (
    r"(?:size|extent|severity|appearance|degree|amount|position|positioning|configuration|location|alignment"
    r"|placement)s?"
)
_ASPECT = (
    rf"(?:{_PLACED}|(?:conspicuity|volume|caliber|number|distribution|density|contour|morphology|magnitude|width|course"
    r"|intensity|thickness|prominence)s?)"
)
_JOIN = r"(?:,| and| or|, and|/) ?"
_IN_ASPECT = (
    rf"(?:(?: slightly| mildly| minimally| significantly| markedly| somewhat)?(?: (?:in|of)(?: overall| its| their| "
    rf"the)? {_ASPECT}(?:{_JOIN}{_ASPECT})?| as well| at this time| currently| today)?)"
)
_ADJECTIVE = (
    r"(?=(?:not |\w+ly )?(?:\w+(?:ed|ly|al|ous)\b|un(?!changed)\w+|small|tiny|trace|minimal|mild|moderate|large|severe"
    r"|clear|with|within|without|at\b|in\b|intact|prominent|compatible|consistent|low\b|top|borderline|suspicious"
    r"|concerning|satisfactory))"
)
_SIZED = (
    r"(?:small|tiny|trace|minimal|mild|moderate|large|severe|massive|minor|substantial|extensive|mild-to-moderate"
    r"|normal|mildly|moderately|severely|markedly|clear|enlarged|top-normal|borderline)\b"
)
# States: after "is" and after a noun; "increased" is a state of its own ("vascularity is increased") and stands apart.
_STATE = (
    r"(?:unchanged|stable|improved|improving|worsened|worsening|resolving|progressing|progressed|persistent|persisting"
    r"|similar|constant|static|changed|the same|without (?:significant |interval |relevant )*change|diminished"
    r"|diminishing|enlarging|evolving|developing|clearing|increasing|decreasing|regressing|lessened|better|worse|new)\b"
)
_MORE = r"(?:increased|decreased|reduced|larger|smaller|greater|lower|bigger|less|more)\b"
_HAS = (
    r"(?:increased|decreased|improved|worsened|progressed|enlarged|diminished|reduced|lessened|regressed|grown|expanded"
    r"|changed|altered|evolved|developed|appeared|occurred|accumulated|re-?accumulated|recurred|persisted|deteriorated"
    r"|remained (?:stable|unchanged|constant|the same|similar)|fluctuated|resolved|cleared|been removed|re-?expanded"
    r"|been (?:\w+ly |interval |now )?(?:placed|inserted|introduced|repositioned|exchanged|replaced|adjusted|advanced"
    r"|retracted|pulled back|withdrawn|changed|improved|decreased|increased|reduced|added|re-?inflated|stable)|(?:shown"
    r"|undergone|demonstrated) (?:\w+ ){0,3}(?:improvement|change|increase|decrease|worsening|progression|resolution)"
    r"|become (?:\w+ly )?(?:more|less) (?:prominent|conspicuous|apparent|extensive|dense|confluent|pronounced|severe"
    r"|marked|evident|distinct|visible))\b"
)
_BY = r"(?: (?:by |approximately |about )*\d[\d.]* ?(?:cm|mm))?"
_DEAD_END = r"(?=\s*(?:[.,;:)]|$|(?:and|but|with|without|which|while|although)\b))"
_STOP = (
    r"(?=\s*(?:[.,;:()]|$|(?:and|but|with|without|which|while|although|on|in|at|within|bilaterally|due|likely"
    r"|consistent|compatible|suggest\w*|along|representing|probably|possibly|as|most|may|compared|reflecting|suspicious"
    r"|concerning|involving|given|throughout|overlying|despite|following|after|near)\b))"
)
_MODS = (
    r"(?:(?:[a-z]+ly|slight|mild|minimal|moderate|marked|significant|substantial|relevant|appreciable|considerable"
    r"|continued|further|ongoing|interval|overall|gradual|progressive|definite|obvious|apparent|possible|probable|some"
    r"|short|great|dramatic|rapid|near-complete|partial|incomplete|near|complete|important|clear|subtle|other"
    r"|convincing|major|radiographic|perhaps|mild-to-moderate|small|substantive|gross|large|much|detectable|real|or|and"
    r"|to|new|very) )"
)
_CHANGE = (
    r"(?:(?:increase|decrease|improvement|worsening|progression|reduction(?! of)|regression|alteration|persistence"
    r"|evolution|growth|deterioration|clearing|resolution|stability|re-?expansion|diminution)s?(?! (?:in|of) (?:the )?"
    r"(?:height|vertebral|dis[ck]|bone|joint|anterior))|change(?!s| of)|(?:(?<=interval )|(?<=significant )|(?<=no "
    r"))changes)\b"
)
_NO = r"(?:(?:no|not|without|little|any|an?|the|some|evidence (?:of|for)|signs? of|with|definite|also|now|again) )"
_THERE = (
    r"(?:there(?:'s| is| are| was| were| has| have| may be| may have| appears to be| appears to have| continues to be| "
    r"remains?)(?: also)?(?: been)? )"
)
_SHOWS = r"(?:shows?|demonstrates?|reveals?|exhibits?|showing|demonstrating|has had|have had)"
_OF = rf"(?:in|of|to|within|for) (?:(?:the |its |their |overall )*{_ASPECT}(?:{_JOIN}{_ASPECT})? (?:of|and) )?"
_LATELY = "(?:(?:interval|new|recent|subsequent) )"
_COMING = (
    r"(?:development|placement|insertion|appearance|introduction|recurrence|re-?accumulation|advancement|repositioning"
    r"|retraction|exchange|replacement|re-?demonstration|visuali[sz]ation)"
)
_SEEN = (
    r"(?:seen|noted|described|demonstrated|identified|visuali[sz]ed|reported|developed|questioned|suspected|mentioned"
    r"|present|documented|placed|inserted|visible|imaged|known|evident|appearing|observed|apparent)"
)
_NEXT = r"(?=[\w\[(\ue000-\uf8ff])"  # a word follows
_NOT_NEXT = (
    r"(?!(?:from|since|in|compared|and|or|but|to|with|without|on|at|as|when|is|are|of|given|for|by|following|after|over"
    r"|allowing|considering|despite|through|throughout|than|between|until)\b)"
)


def _article(match: re.Match[str]) -> str:
    """ "an unchanged small" -> "a small"."""
    if not match[1]:
        return ""
    following = match.string[match.end() : match.end() + 1].lower()
    return match[1][0] + ("n " if following in "aeiou" else " ")


def _unless_no_larger(match: re.Match[str]) -> str:
    """ "No larger effusion" compares with nothing."""
    sized = match.group().endswith(("larger ", "smaller ")) and NEGATION.search(match.string, 0, match.start())
    return match.group() if sized else _article(match)


def _new(match: re.Match[str]) -> str:
    """A negated "new" stays here: what it becomes depends on the rest of the text."""
    return match.group() if NEGATION.search(match.string, 0, match.start()) else _article(match)


def _unnegated(match: re.Match[str]) -> str:
    """ "No change in A or B" -> "A and B"."""
    return match[1].replace(" or ", " and ")


def _be(match: re.Match[str]) -> str:
    return "is" if match[1].lower().split()[0].endswith("s") else "are"


_NOUNS = (
    "chang increas decreas improv worse progress reduc regress alter differ persist evol grow deterior exacer clear "
    "resol stabil expan diminu enlarg"
)
_STATES = (
    "unchanged stable improv wors resolv progress persist similar constant static changed same change diminish enlarg "
    "evol develop clear creas regress lessen better new"
)
_MORES = " reduced larger smaller greater lower bigger less more"
_HAVE = "has have"

REWRITES: tuple[Rule, ...] = (
    # Aeration tells nothing of the image without the comparison.
    rule("aeration inspirat expansion ventilation", r"(?:, |\b)(?:(?:with|and|due to|likely due to|secondary to) )?"
         rf"{_ADV}(?:improved|better|worsened|worse|poorer|increased|decreased|improving|improvement in) (?:lung )?"
         r"(?:aeration|inspiration|inspiratory (?:effort|volumes?)|expansion|ventilation)\b(?: (?:of|in|at) [\w "
         r"]{1,40}?(?=[.,;]|$|\b(?:with|and)\b))?(?=\s*(?:[.,;]|$|(?:with|and|but|since|in|bilaterally|compared)\b))"),
    # What is abnormal in itself stays: "increase in interstitial markings".
    rule("increase", rf"^{_THERE}?{_MODS}{{0,3}}increase in (?:the )?(?=(?:[\w/-]+ ){{0,3}}(?:markings|lucency"
         rf"|vascularity))",
         "increased "),
    rule("increase", rf"^{_THERE}?(?:an? )?{_MODS}{{0,3}}increase in (?:the )?((?:overall )?(?:size of (?:the )?)?"
         rf"(?:heart|cardiac)\b)", r"increased \1"),
    rule("increased", rf"\b((?:heart|cardiac)[\w ]{{0,20}}) (?:has|have) {_ADV}increased", r"\1 is increased"),
    rule("increased", rf"\b(markings|vascularity|lucency) (?:has|have) {_ADV}increased", r"\1 are increased"),
    rule("cleared", r"\b(lungs?) (?:has|have) (?:\w+ )?cleared\b", r"\1 are clear"),
    # "AP chest shows no change in", "There has been interval increase in", "Interval worsening of".
    rule(_NOUNS, rf"(?:,? (?:{_SHOWS}|with|without|and|but|has|have)|,) (?:(?:no|little|an?|some|not much|any) )?"
         rf"(?:evidence of )?{_MODS}{{0,4}}{_CHANGE}{_IN_ASPECT}{_DEAD_END}"),
    rule(_NOUNS, rf"^(?:{_THERE}|{_SHOWS} )?{_NO}{{0,4}}{_MODS}{{0,4}}{_CHANGE}{_IN_ASPECT}(?=[.,;]|$)"),
    rule("no without", rf"^{_THERE}?{_NO}{{0,2}}(?:no|without) {_NO}{{0,3}}{_MODS}{{0,4}}{_CHANGE} "
         rf"{_OF}([^.;]*)$", _unnegated),
    rule(_NOUNS, rf"^{_THERE}?{_NO}{{0,4}}{_MODS}{{0,4}}{_CHANGE}(?:,? (?:or|and) {_MODS}{{0,2}}{_CHANGE})? {_OF}"),
    rule(_NOUNS, rf"\b({_SHOWS}|with|without|due to|has|had) (?:(?:no|little|an?|the|some) )?(?:evidence (?:of|for) "
         rf")?{_MODS}{{0,4}}{_CHANGE}(?:,? (?:or|and) {_CHANGE})? {_OF}", r"\1 "),
    rule(_NOUNS, rf"\b(and|but|or) (?:no )?{_MODS}{{0,4}}{_CHANGE} {_OF}", r"\1 "),
    rule("change", rf",? or {_MODS}{{0,4}}change{_DEAD_END}"),
    # Placement and development.
    rule("of ", rf"^there(?:'s| has| have| is| are)(?: been)? (?:(?:interval|new|recent|subsequent|also|now) )*"
         rf"(?:accumulation|{_COMING}) of ", "there is "),
    rule("of ", rf"(?:(?:^|(?<=no )|(?<=without )|(?<=evidence of )){_LATELY}*|\b(?:interval|new) {_LATELY}*){_COMING} "
         rf"of {_NEXT}"),
    rule("intubated", r"\b(?:has|have) been (?:\w+ly |interval |re)?intubated", "is intubated"),
    rule("received", rf"\b(?:has|have) (?:\w+ )?received {_NEXT}", "has "),
    # "has increased from small to moderate", "has increased and is now large", "is unchanged and mildly enlarged".
    rule(_HAVE, rf" (?:has|have) {_ADV}{_HAS}{_IN_ASPECT} (?:from (?:\w+|[\d.]+(?: ?[cm]m)?)(?: in size)? )?to "
         rf"(?={_SIZED}|\d)", " is "),
    rule(_HAVE, rf" (?:has|have) {_ADV}{_HAS}{_IN_ASPECT}{_BY},? (?:and )?(?:(?:is|are) )?(?:now|currently) "
         rf"(?={_SIZED})", " is "),
    rule(_HAVE, rf"(?:,? (?:which|that))? (?:has|have) {_ADV}{_HAS}{_IN_ASPECT}{_BY}(?:,? and)?(?: now| currently)? (?="
         rf"(?:\w+ly )?{FINITE.pattern})", " "),
    rule(_STATES, rf"(?:,? (?:which|that))? (?:is|are) {_ADV}{_STATE}{_IN_ASPECT},? and (?=(?:most )?(?:\w+ly )?"
         rf"(?:represent|reflect|indicat|suggest"
         r"|may|could|might|appear|is\b|are\b)\w*)", " "),
    rule(_STATES + _MORES, rf" (is|are|remains?|appears?) {_ADV}(?:{_STATE}|{_MORE}){_IN_ASPECT},? and (?:is |are )?"
         rf"(?:now )?{_ADJECTIVE}", r" \1 "),
    rule("stable unchanged similar", rf"(?<=\w) {_ADV}(?:stable|unchanged|similar){_IN_ASPECT},? and "
         rf"{_ADJECTIVE}", " "),
    rule(_STATES, rf" (?:is|are) {_ADV}(?:{_STATE}{_IN_ASPECT}|in (?:an? )?{_STATE} position),? as (?:is"
         rf"|are)\b", " and"),
    rule(_STATES + _MORES, rf"^(?:this|these|those|it|they)(?: findings?)?(?: (?:is|are|has|have|appears?|been|may"
         rf"|be))+ {_ADV}(?:{_STATE}|{_MORE}|{_HAS}){_IN_ASPECT}$"),
    rule(_STATES + _MORES, rf",? with (?:an? )?{_ADV}(?:{_STATE}|{_MORE}) (?:in )?{_ASPECT}{_DEAD_END}"),
    # Predicates: "has increased in size", "which is unchanged", "persists".
    rule(_HAVE, r"(?:,? (?:which|that))? (?:(?:may|might|could|appears? to|seems? to|to) )?(?:has|have|having) (?:been "
         r")?"
         rf"{_ADV}(?:{_HAS}|{_STATE})(?:(?:,? (?:or|and|but|to|if not) |/){_ADV}(?:{_HAS}"
         rf"|{_STATE}))?{_IN_ASPECT}{_BY}{_STOP}"),
    rule(_STATES, r"(?:,? (?:which|that))? (?:is|are|was|were|(?:to|may|might|could) be|appears?|remains?|remained"
         r"|seems?|looks?|continues?)"
         rf"(?: to (?:be|remain|have))?(?: been)? {_ADV}{_STATE}(?:(?:,? (?:or|and|but|to) |/){_ADV}(?:{_STATE}"
         rf"|{_MORE}))?{_IN_ASPECT}{_STOP}"),
    rule("creased" + _MORES, rf"\b({_FINDING}(?: [\w-]+){{0,6}}?)(?:,? (?:which|that))? (?:is|are|appears?|remains?|"
         rf"(?:may|might|could) be) {_ADV}{_MORE}{_IN_ASPECT}{_DEAD_END}", r"\1"),
    rule("persist continue", r"(?:,? (?:which|that))? (?:persists?|persisted|continues?)(?: to (?:persist|improve"
         r"|worsen|increase"
         rf"|decrease|progress|resolve|enlarge|clear))?{_STOP}"),
    rule("remain", rf"(?<=\w) (?:still |nevertheless )?remains?{_DEAD_END}"),
    # After a noun: ", stable", "unchanged in appearance".
    rule(_STATES, rf"(?:,|(?<=\w)| \() ?\b(?:(?:and|but|also|though) )?{_ADV}(?:unchanged|stable|improved|worsened"
         rf"|persistent"
         r"|progressed|not (?:\w+ly )?(?:changed|altered|different)|new|resolving|improving|worsening|increasing"
         r"|decreasing|similar)"
         rf"(?:(?: (?:or|and|but|to) |/){_ADV}(?:{_STATE}|{_MORE}))?{_IN_ASPECT}\)?{_DEAD_END}"),
    rule("creased worse better larger smaller enlarged", rf",(?: and| but)? {_ADV}(?:increased|decreased|better|worse"
         rf"|larger|smaller|enlarged){_IN_ASPECT}(?=\s*(?:[.,;]|$))"),
    rule("unchanged stable similar constant same", rf"\b(?:(?:is|are|remains?) )?in (?:an? |the )?{_ADV}(?:unchanged"
         rf"|stable"
         r"|similar|constant|same) (?:standard |good |appropriate )?(?:position|location|alignment|configuration)s?"),
    rule("unchanged stable similar same", r" at (?:the|an?) (?:same|unchanged|stable|similar) (?:level|position"
         r"|location)"),
    # "Again seen is", "redemonstrated".
    rule("again demonstrated unchanged stable new now", r"^(?:(?:once )?again,? (?:seen|noted|demonstrated|identified"
         r"|visuali[sz]ed|observed|present|evident)|re-?demonstrated|again|(?:unchanged|stable|new|now seen)(?=,| is| "
         r"are))(?:,| is| are| as)? (?:again )?(?:(?:is|are) )?"
         rf"{_NOT_NEXT}{_NEXT}"),
    rule("enlargement", rf"\b(?:{_ADV}(?:interval|further|continued|progressive) )+enlargement of (?!(?:the )?(?:heart"
         rf"|cardi|medias"
         r"|hil|pulm|aort))"),
    rule("demonstrat", r"\bre-?demonstration (?:of|without [\w ]{0,30}change (?:in|of)) |,? ?\b(?:(?:is|are) (?:again "
         r")?)?re-?demonstrated\b"),
    rule("again", r",? ?\b(?:once |yet )?again\b(?:,(?= ))?"),
    rule("still", r"\b(is|are|has|have|there) still\b", r"\1"),
    # Words before a noun.
    rule("lower lung", r"\blower lung volumes", "low lung volumes"),
    rule("stable unchanged", rf"\b({_SIZED}|unremarkable) and {_ADV}(?:stable|unchanged) (?=\w)", r"\1 "),
    rule("has have", r"^[^,;]* (?:has|have) been (?:exchanged for|replaced (?:by|with)) "),
    # What does not get worse is there.
    rule("no without", rf"\b(?:no|without) (?:(?:evidence of|signs? of|definite|significant|clear) ){{0,2}}(?:worsening"
         rf"|increasing|enlarging|progressing) (?={_LIKE}{_FINDING})"),
    rule(_STATES + " existing ongoing continu interval demonstrated", rf"\b(an? )?{_ADV}(?:unchanged|stable|persistent"
         rf"|persisting"
         r"|worsening|worsened|improving|improved|increasing|decreasing|enlarging|pre[- ]?existing|evolving|resolving"
         r"|developing|unresolved|continued|continuing|ongoing|re-?demonstrated|interval(?! (?:follow|imaging|repeat)))"
         rf"(?:(?:,| and| or| to| but|/) ?{_ADV}(?:{_STATE}|{_MORE}|enlarged))*(?:[ -]appearing)?(?: (?:in )?{_PLACED}"
         rf"(?: and {_PLACED})? (?:of|in)(?: the)?)? {_NOT_NEXT}(?!(?:inspiration|visuali|penetration|technique"
         rf"|positioning)){_NEXT}", _article),
    rule("creased reduced diminished residual recurr progress develop larger smaller further extensive severe "
         "accumulating",
         rf"\b(an? )?{_ADV}(?:increased|decreased|residual|recurrent|progressive|developing|progressing|larger|smaller"
         rf"|reduced"
         r"|diminished|further|more extensive|less extensive|more severe|less severe|reaccumulating|recurring)"
         rf" (?={_LIKE}(?!opacit|opacif|nodul|mass){_FINDING})", _unless_no_larger),
    rule("interval", rf"\b(an? )?(?:interval|intervally|further) (?:increased|decreased) "
         rf"(?={_LIKE}{_FINDING})", _article),
    rule("residual recurrent", rf"\b(an? )?{_ADV}(?:residual|recurrent)(?: (?:or|and) (?:residual|recurrent))? "
         rf"(?={_LIKE}{_FINDING})", _article),
    rule("prior previously formerly newly initially earlier", rf"\b(an? )?(?:previously|prior|formerly|newly|initially"
         rf"|earlier) {_SEEN}[, ]+{_NEXT}", _article),
    rule("newly", r"\bnewly (?:appeared|developed|occurred|occurring|appearing|seen)\b", "new"),
    rule("new", r"\b(an? )?(?:(?:apparently|relatively|apparent|somewhat|likely|possibly) )?new(?:,? (?:and|or|but) "
         r"(?:\w+ )?(?:\w+ing|increased|progressive|larger|worsened|enlarged))?(?: appearing)?(?:,(?= \w))? "
         rf"{_NOT_NEXT}{_NEXT}", _new),
    # Verbs that keep a state.
    rule("remain continue", r"\b(remains?|continues? to be)\b(?= [\w(\ue000-\uf8ff])", _be),
    rule("been", r"\bthere (?:has|have) been (?=(?:an? )?(?:interval|new)\b)", "there is "),
    rule("continue", r"\bcontinues to (show|demonstrate|have)\b", r"\1s"),
    rule("continue", r"\bcontinue to (show|demonstrate|have)\b", r"\1"),
    rule("now with", r"\bnow with\b", "with"),
    rule("now", r"\b(is|are|has|have) now\b|\bnow (?=(?:small|mild|moderate|large|minimal|trace|severe|seen|in\b|at\b"
         r"|within|terminat|end|lie|project|demonstrat|present|located|overl|extend|approx|\d|positioned|measur"
         r"|clear))", r"\1"),
    rule("no longer", r"\bno longer (?=\w)", "not "),
)  # fmt: skip

BARE = compiled(rf"(?:{ADVERB}|in |the )*(?:{_STATE}|{_MORE}|resolved|progression|increase|decrease)")
