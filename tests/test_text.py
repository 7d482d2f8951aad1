import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radverl.text import normalise, remove_prior_references, split_sections, split_sentences

SENTENCES = [
    (
        "Results were called to Dr. Jones at 3:15 p.m. on the same day. No effusion.",
        ["Results were called to Dr. Jones at 3:15 p.m. on the same day.", "No effusion."],
    ),
    ("A 2.5 cm mass is in the left apex. It is new.", ["A 2.5 cm mass is in the left apex.", "It is new."]),
    ("Wedge fracture of L1. No rib fracture.", ["Wedge fracture of L1.", "No rib fracture."]),
    ("1. Small effusion. 2. Mild edema without mass.", ["1. Small effusion.", "2. Mild edema without mass."]),
    ("FINDINGS: Clear lungs. Normal heart.", ["FINDINGS: Clear lungs.", "Normal heart."]),
    (
        "IMPRESSION:\n1. No acute disease.\n2. NG tube 4. 2 cm below the GE junction.",
        ["IMPRESSION:", "1. No acute disease.", "2. NG tube 4. 2 cm below the GE junction."],
    ),
    (
        "Heart is large\nNo pneumothorax\nMild edema at the bases",
        ["Heart is large", "No pneumothorax", "Mild edema at the bases"],
    ),
    (
        "Two views were obtained. lungs are clear. no mass.",
        ["Two views were obtained.", "lungs are clear.", "no mass."],
    ),
    (
        "Nodule measuring approx. 5 x 6 mm vs. 4 x 5 mm before. Likely benign.",
        ["Nodule measuring approx. 5 x 6 mm vs. 4 x 5 mm before.", "Likely benign."],
    ),
    (
        "Compared with ___. Since XXXX, the left PICC is gone.",
        ["Compared with ___.", "Since XXXX, the left PICC is gone."],
    ),
    ("There is no mass.There is no edema.", ["There is no mass.", "There is no edema."]),
    ("1.No edema.2.Small effusion of 1.5 cm.", ["1.No edema.", "2.Small effusion of 1.5 cm."]),
    (
        "The tip is low (i.e. near the carina). Any free air? None.",
        ["The tip is low (i.e. near the carina).", "Any free air?", "None."],
    ),
    ("Seen at 9:10 a.m. Findings are stable.", ["Seen at 9:10 a.m.", "Findings are stable."]),
    (
        "There is a new moderate left pleural effusion which tracks into the\nmajor fissure. No edema.",
        ["There is a new moderate left pleural effusion which tracks into the major fissure.", "No edema."],
    ),
    ("- Mild edema\n- Small effusion", ["- Mild edema", "- Small effusion"]),
    ("", []),
    (" \n\t ", []),
]


@pytest.mark.parametrize(("text", "sentences"), SENTENCES)
def test_sentences(text, sentences):
    assert split_sentences(text) == sentences


@given(st.text(alphabet="aB1.?!,:;()-_ \n\t", max_size=200))
def test_sentences_keep_every_character_but_white_space(text):
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


MIMIC = """                                 FINAL REPORT
 EXAMINATION:  CHEST (PA AND LAT)
 
 INDICATION:  ___ year old man with fever  // pneumonia?
 
 FINDINGS: 
 
 The heart is normal in size.  A small left pleural effusion is seen at the
 base.
 
 IMPRESSION: 
 
 1.  Small left effusion.
 2.  No pneumonia.
"""


def test_a_whole_report():
    assert split_sections(MIMIC) == {
        "examination": "CHEST (PA AND LAT)",
        "indication": "___ year old man with fever // pneumonia?",
        "findings": "The heart is normal in size. A small left pleural effusion is seen at the base.",
        "impression": "1. Small left effusion.\n2. No pneumonia.",
    }


@pytest.mark.parametrize(
    ("report", "sections"),
    [
        ("IMPRESSION:Clear.", {"impression": "Clear."}),
        (" FINDINGS:\n IMPRESSION: No edema.", {"impression": "No edema."}),
        ("Findings: Clear. Impression: Normal.", {"findings": "Clear.", "impression": "Normal."}),
        ("findings: clear\nimpression: normal", {"findings": "clear", "impression": "normal"}),
        ("FINDINGS:Clear.IMPRESSION:Normal.", {"findings": "Clear.", "impression": "Normal."}),
        (" NDICATION: Cough.\n IMPRESSION: Normal.", {"indication": "Cough.", "impression": "Normal."}),
        (" FINIDNGS: Clear.\n IMPRESSON: Normal.", {"findings": "Clear.", "impression": "Normal."}),
        (" FINDINGS AND IMPRESSION: Normal.", {"impression": "Normal."}),
        ("CONCLUSION: Normal.", {"impression": "Normal."}),
        ("IMPRESSION\nNormal.\n", {"impression": "Normal."}),
        ("IMPRESSION: Old.\nIMPRESSION: New.", {"impression": "New."}),
        ("IMPRESSION: Old.\nIMPRESSION:\n", {"impression": "Old."}),
        ("No headers here. Clear lungs.", {"findings": "No headers here. Clear lungs."}),
        ("FINAL REPORT\n Clear lungs.", {"findings": "Clear lungs."}),
        ("FINDINGS: LUNGS: Clear. HEART: Normal.", {"findings": "LUNGS: Clear. HEART: Normal."}),
        (
            "INDICATION: Fever.\n \n AP chest was compared to ___.\n \n No edema.",
            {"indication": "Fever.", "findings": "AP chest was compared to ___.\n\nNo edema."},
        ),
        (
            " WET READ: ___ 9:14 PM\n  Opacity.\n ____________________\n   FINAL REPORT\n IMPRESSION: Clear.",
            {"wet read": "___ 9:14 PM\nOpacity.", "impression": "Clear."},
        ),
        (
            "FINDINGS: a.\nIMPRESSION: b.\nADDENDUM IMPRESSION: c.",
            {"findings": "a.", "impression": "b.", "addendum": "c."},
        ),
        (
            "ADDENDUM\n IMPRESSION: changed.\n ____________________\n FINAL REPORT\n IMPRESSION: main.",
            {"addendum": "changed.", "impression": "main."},
        ),
        ("IMPRESSION: b.\n ADDENDUM: See below.\n IMPRESSION: c.", {"impression": "b.", "addendum": "See below.\nc."}),
        ("**Findings:** Clear.\n**Impression:** Normal.", {"findings": "Clear.", "impression": "Normal."}),
        (
            " HISTORY: Cough.\n \n CHEST, TWO VIEWS: Clear.\n \n IMPRESSION: Normal.",
            {"history": "Cough.", "findings": "Clear.", "impression": "Normal."},
        ),
        (
            " COMPARISON: None.\n \n PA view of the chest. Clear lungs.\n \n IMPRESSION: Normal.",
            {"comparison": "None.", "findings": "PA view of the chest. Clear lungs.", "impression": "Normal."},
        ),
        ("RECOMMENDATION(S): CT.\nIMPRESSION: Nodule.", {"recommendation": "CT.", "impression": "Nodule."}),
        ("", {}),
        (" \n ", {}),
    ],
)
def test_sections(report, sections):
    assert split_sections(report) == sections


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_sections_of_any_text_are_strings_without_outer_space(text):
    for name, body in split_sections(text).items():
        assert name == name.lower()
        assert body
        assert body == body.strip()


def test_long_texts_take_linear_time():
    for unit in (
        "FINDINGS: ",
        "no effusion ",
        "A\n",
        "1. ",
        "___ ",
        "((((",
        "IMPRESSION\n",
        "unchanged ",
        "of the ",
        "ADDENDUM\n",
    ):
        text = unit * (100_000 // len(unit))
        start = time.perf_counter()
        split_sections(text)
        split_sentences(text)
        remove_prior_references(text)
        assert time.perf_counter() - start < 10, unit


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("unchanged small left effusion", "small left effusion"),
        ("Stable mild cardiomegaly.", "Mild cardiomegaly."),
        ("As compared to the previous radiograph, there is no relevant change. Normal heart.", "Normal heart."),
        ("No pneumothorax since prior.", "No pneumothorax."),
        ("The heart is enlarged, unchanged from ___.", "The heart is enlarged."),
        ("Mild edema has improved.", "Mild edema."),
        ("No significant interval change.", ""),
        ("Comparison is made to the prior study from ___.", ""),
        ("The previously seen pneumothorax has resolved.", ""),
        ("The chest tube has been removed. No pneumothorax.", "No pneumothorax."),
        (
            "Compared to the prior study, there is increased opacity at the left base.",
            "There is increased opacity at the left base.",
        ),
        ("Left consolidation, slightly worse compared to the prior exam.", "Left consolidation."),
        ("No significant change in the large right effusion.", "The large right effusion."),
        ("Again seen is a small left effusion.", "A small left effusion."),
        ("The lungs remain clear.", "The lungs are clear."),
        ("The lungs are clear. No effusion.", "The lungs are clear. No effusion."),
        ("", ""),
    ],
)
def test_references_to_priors_go_and_findings_stay(text, kept):
    assert remove_prior_references(text) == kept


@pytest.mark.parametrize("text", [t for t, _ in SENTENCES[:6]])
def test_removing_priors_twice_changes_nothing_more(text):
    once = remove_prior_references(text)
    assert remove_prior_references(once) == once


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  No\tEFFUSION .\n", "no effusion"),
        ("Heart\u2019s size\u00a0normal", "heart's size normal"),
        ("a\x00b\u200bc", "a bc"),
        ("T5\u2013T6", "t5-t6"),
        ("", ""),
    ],
)
def test_normal_form(text, normal):
    assert normalise(text) == normal


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80))
def test_normal_form_is_idempotent(text):
    assert normalise(normalise(text)) == normalise(text)
