import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.sections import make_reports
from radverl.text import apply_blanks, split_sections

# A sentence with marks -> what "drop" leaves of it.
DROPPED = [
    # Age and sex.
    ("___-year-old woman with cough.", "woman with cough."),
    ("A ___ year old man with fever.", "A man with fever."),
    ("XXXX-year-old male, chest pain.", "male, chest pain."),
    ("___F with chest pain", "F with chest pain"),
    ("The patient is ___ years old.", ""),
    # Dates and comparisons.
    ("Compared to ___, the effusion is larger.", "The effusion is larger."),
    ("As compared to the previous radiograph from ___, the effusion is larger.", "The effusion is larger."),
    ("In comparison with the study of ___ there is little change.", "There is little change."),
    ("Comparison is made to ___.", ""),
    ("Compared to ___.", ""),
    ("The heart is mildly enlarged, unchanged from ___.", "The heart is mildly enlarged, unchanged."),
    ("No change since ___ at 9:14 a.m.", "No change."),
    ("On [**2101-3-4**], the effusion was larger.", "The effusion was larger."),
    ("Since [**Hospital 18**] study, no change.", "No change."),
    ("Enlarged from XX/XX/XXXX.", "Enlarged."),
    ("Radiographs from ___ and ___ show a nodule.", "Radiographs show a nodule."),
    ("Recommend follow-up in ___ weeks.", "Recommend follow-up."),
    ("Study of ___.", ""),
    ("AP chest compared to ___:", ""),
    # Measures.
    ("The tube ends ___ cm above the carina.", "The tube ends above the carina."),
    ("There is a ___ cm nodule in the left apex.", "There is a nodule in the left apex."),
    ("A ___ x ___ cm mass is seen.", "A mass is seen."),
    ("Nodule measuring ___ mm in the right lung.", "Nodule in the right lung."),
    ("The nodule measures ___ cm.", ""),
    ("The tip is ___ cm from the carina.", ""),
    # Persons.
    ("Findings were discussed with Dr. ___ by telephone at 3:10 p.m. on ___.", ""),
    ("Dr. ___ was paged.", ""),
    ("The line was placed by Dr. ___.", "The line was placed."),
    ("Dictated by: ___.", ""),
    # Words that Open-i hides.
    ("XXXX opacity", "opacity"),
    ("A XXXX opacity is seen.", "An opacity is seen."),
    ("There is XXXX XXXX opacity in the left base.", "There is opacity in the left base."),
    ("Normal chest x-XXXX.", "Normal chest."),
    ("There are no XXXX of a pleural effusion.", "There are no pleural effusion."),
    ("Midline sternotomy XXXX.", "Midline sternotomy."),
    ("Increased density at the left cardiophrenic XXXX.", "Increased density."),
    ("Degenerative changes of the XXXX spine.", "Degenerative changes of the spine."),
    ("Lungs and XXXX are clear.", "Lungs are clear."),
    ("Heart size is normal, and XXXX is unremarkable.", "Heart size is normal."),
    ("No evidence of XXXX or effusion.", "No evidence of effusion."),
    ("XXXX are clear.", ""),
    ("The XXXX are normal.", ""),
    ("No XXXX.", ""),
    ("Inferior XXXX XXXX XXXX.", ""),
    ("Mild <unk> cardiomegaly.", "Mild cardiomegaly."),
    ("Small effusion (___) is seen.", "Small effusion is seen."),
    ("___", ""),
]
UNMARKED = [
    "No effusion.",
    " FINDINGS:  Two  spaces.\r\n\r\n IMPRESSION:\n 1.  Clear. \n",
    "PA chest X-ray, 2 x 3 cm, T12, XR",
    "__bold__ and a rule\n____________________\n",
    "",
]


@pytest.mark.parametrize(("text", "left"), DROPPED)
def test_drop(text, left):
    assert apply_blanks(text, "drop") == left


@pytest.mark.parametrize("text", [text for text, _ in DROPPED if text.endswith(".")])
def test_sentence_and_keep(text):
    assert apply_blanks(text, "keep") == text
    assert apply_blanks(f"Clear lungs. {text} No edema.", "sentence") == "Clear lungs. No edema."


@pytest.mark.parametrize("text", UNMARKED)
@pytest.mark.parametrize("policy", ["keep", "drop", "sentence"])
def test_a_text_without_marks_is_as_it_was(text, policy):
    assert apply_blanks(text, policy) == text


def test_an_unknown_policy_names_the_known_ones():
    with pytest.raises(ValueError, match="'remove' is not known; use one of keep, drop, sentence"):
        apply_blanks("Clear.", "remove")


@pytest.mark.parametrize(
    ("text", "dropped", "without"),
    [
        ("FINDINGS: Stable since ___. Clear.", "FINDINGS: Stable. Clear.", "FINDINGS: Clear."),
        ("FINDINGS: a b.\nCOMPARISON: ___.\nIMPRESSION: c d.", *["FINDINGS: a b.\nIMPRESSION: c d."] * 2),
        (" FINDINGS: ___.\n \n Clear.\n", *[" FINDINGS:\n \n Clear.\n"] * 2),
        ("IMPRESSION:\n1. Compared to ___.\n2. Edema.\n", *["IMPRESSION:\n2. Edema.\n"] * 2),
        ("FINDINGS: Clear. COMPARISON: ___. IMPRESSION: Normal.", *["FINDINGS: Clear. IMPRESSION: Normal."] * 2),
        ("COMPARISON: ___", "", ""),
        ("___\n\nClear  lungs.\n \nHeart ___ normal.", "Clear  lungs.\n \nHeart normal.", "Clear  lungs."),
    ],
)
def test_headers_stay_while_their_section_has_text(text, dropped, without):
    assert apply_blanks(text, "drop") == dropped
    assert apply_blanks(text, "sentence") == without


@pytest.mark.parametrize("policy", ["drop", "sentence"])
def test_whole_reports_keep_their_other_sections(policy):
    for report, truth in make_reports(200, seed=9):
        left = split_sections(apply_blanks(report, policy))
        assert left.keys() <= split_sections(report).keys()
        for name, text in truth.items():
            if "___" not in text:
                assert " ".join(left[name].split()) == text, json.dumps(report)


MARKS = ["___", "XXXX", "<unk>", "[**2101-3-4**]", "XX/XX/XXXX"]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *MARKS,
                "the",
                "lungs",
                "are",
                "clear.",
                "Dr.",
                "cm",
                "since",
                "and",
                ",",
                "FINDINGS:",
                "\n",
                "\n\n",
                "1.",
                "-",
            ]
        ),
        max_size=15,
    ),
    st.booleans(),
    st.sampled_from(["drop", "sentence"]),
)
def test_no_mark_is_left_and_twice_is_once(words, glued, policy):
    text = ("" if glued else " ").join(words)
    once = apply_blanks(text, policy)
    assert glued or not any(mark in once for mark in MARKS)
    assert apply_blanks(once, policy) == once
