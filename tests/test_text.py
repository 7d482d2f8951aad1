import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radverl.text import normalise, split_sentences

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
    ("IMPRESSION: 1. No edema. 2. Small mass.", ["IMPRESSION: 1. No edema.", "2. Small mass."]),
    ("Opacity.\n ________________________\n FINAL REPORT\n Clear", ["Opacity.", "_" * 24, "FINAL REPORT", "Clear"]),
    ("", []),
    (" \n\t ", []),
]


@pytest.mark.parametrize(("text", "sentences"), SENTENCES)
def test_sentences(text, sentences):
    assert split_sentences(text) == sentences


@given(st.text(alphabet="aB1.?!,:;()-_ \n\t", max_size=200))
def test_sentences_keep_every_character_but_white_space(text):
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


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
