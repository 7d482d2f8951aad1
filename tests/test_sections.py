import json
import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.sections import make_reports, plain_split
from radverl.text import split_sections, split_sentences

MIMIC_FOLDER = Path(__file__).parent / "data" / "mimic_cxr"

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


# A report -> its sections. Each is a form that real reports or models take.
KNOWN = [
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
    # Headers in other forms.
    ("FINDINGS : Clear.\nIMPRESSION : Normal.", {"findings": "Clear.", "impression": "Normal."}),
    ("FINDINGS - Clear.\nImpression \u2013 Normal.", {"findings": "Clear.", "impression": "Normal."}),
    (
        "FINDINGS The lungs are clear.\nIMPRESSION 1. Normal.",
        {"findings": "The lungs are clear.", "impression": "1. Normal."},
    ),
    ("Findings\nClear lungs.\n\nImpression\nNormal.", {"findings": "Clear lungs.", "impression": "Normal."}),
    ("findings: clear. impression: normal.", {"findings": "clear.", "impression": "normal."}),
    ("Findings: No massIMPRESSION: Normal", {"findings": "No mass", "impression": "Normal"}),
    ("FINDINGS: NO EFFUSION IMPRESSION: NORMAL", {"findings": "NO EFFUSION", "impression": "NORMAL"}),
    ("1. FINDINGS: Clear.\n2. IMPRESSION: Normal.", {"findings": "Clear.", "impression": "Normal."}),
    ("\ufeffFINDINGS:\xa0Clear.\r\nIMPRESSION:\xa0Normal.\r\n", {"findings": "Clear.", "impression": "Normal."}),
    ("FINDINGS: Clear.\\nIMPRESSION: Normal.", {"findings": "Clear.", "impression": "Normal."}),
    ("FINDINGS:\n IMPRESSION:\n No edema.", {"impression": "No edema."}),
    # Other names.
    ("FINDINGS/IMPRESSION: Normal.", {"impression": "Normal."}),
    ("IMPRESSION AND PLAN: Normal. Follow up.", {"impression": "Normal. Follow up."}),
    (
        "Clinical details: Cough.\nReport: The lungs are clear.\nConclusion: Normal.",
        {"history": "Cough.", "findings": "The lungs are clear.", "impression": "Normal."},
    ),
    (
        "REASON FOR EXAM (AS ENTERED BY CLINICIAN): Fever.\nPRIOR STUDIES: None.\nTECHNIQUE AND FINDINGS: Clear.",
        {"indication": "Fever.", "comparison": "None.", "findings": "Clear."},
    ),
    (
        "HISTORY: Cough.\nSMOKING HISTORY: None.\nFINDINGS: a",
        {"history": "Cough.\nSMOKING HISTORY: None.", "findings": "a"},
    ),
    (" CLINICAL HISOTRY: Cough.\n COMPARISION: ___.", {"history": "Cough.", "comparison": "___."}),
    # Markdown and tags of a model's answer.
    ("## Findings\nClear.\n\n## Impression\nNormal.", {"findings": "Clear.", "impression": "Normal."}),
    ("**Findings**\nClear.\n\n**Impression**\n1. Normal.", {"findings": "Clear.", "impression": "1. Normal."}),
    ("__Findings:__ Clear. __Impression:__ Normal.", {"findings": "Clear.", "impression": "Normal."}),
    ("<findings>Clear.</findings>\n<impression>Normal.</impression>", {"findings": "Clear.", "impression": "Normal."}),
    ("[FINDINGS]\nClear.\n[IMPRESSION]\nNormal.", {"findings": "Clear.", "impression": "Normal."}),
    ("<p>FINDINGS:</p><p>Clear.</p><b>IMPRESSION:</b> Normal.", {"findings": "Clear.", "impression": "Normal."}),
    # Sub-headers, colons and talk about sections stay in the text.
    (
        "FINDINGS:\nCHEST: Clear.\nLINES AND TUBES: None.\nOTHER FINDINGS: Old fracture.",
        {"findings": "CHEST: Clear.\nLINES AND TUBES: None.\nOTHER FINDINGS: Old fracture."},
    ),
    (
        "FINDINGS: a.\nIMPRESSION:\nCHEST: Clear.\nABDOMEN: Gas.",
        {"findings": "a.", "impression": "CHEST: Clear.\nABDOMEN: Gas."},
    ),
    (
        " INDICATION:  History: ___F with cough.\n COMPARISON:  Chest film: ___\n FINDINGS: Clear. Comparison: none.",
        {
            "indication": "History: ___F with cough.",
            "comparison": "Chest film: ___",
            "findings": "Clear. Comparison: none.",
        },
    ),
    (
        " IMPRESSION: AP chest compared to ___ through ___:\n \n Clear.",
        {"impression": "AP chest compared to ___ through ___:\n\nClear."},
    ),
    (
        " IMPRESSION:\n \n PA AND LATERAL CHEST COMPARED TO ___:\n \n Clear.",
        {"impression": "PA AND LATERAL CHEST COMPARED TO ___:\n\nClear."},
    ),
    ("FINDINGS: COMPRESSION: none.\nCONTUSION: none.", {"findings": "COMPRESSION: none.\nCONTUSION: none."}),
    ("COMPARISON is made to ___.\nLungs clear.", {"findings": "COMPARISON is made to ___.\nLungs clear."}),
    (
        "IMPRESSION: Clear.\n\nElectronically signed by: ___ on 1/1/2000 9:14",
        {"impression": "Clear.\n\nElectronically signed by: ___ on 1/1/2000 9:14"},
    ),
    ("Comparison ___: new effusion.", {"findings": "Comparison ___: new effusion."}),
    # Films as headers.
    (
        " CHEST, TWO VIEWS:\n \n INDICATION: Cough.\n \n FINDINGS: Clear.",
        {"examination": "CHEST, TWO VIEWS:", "indication": "Cough.", "findings": "Clear."},
    ),
    ("Reason for exam: cough\nPA and lateral chest: Clear.", {"indication": "cough", "findings": "Clear."}),
    # Impression first.
    (
        "IMPRESSION: Normal.\n\nTECHNIQUE: PA.\nFINDINGS: Clear.",
        {"impression": "Normal.", "technique": "PA.", "findings": "Clear."},
    ),
    # Addenda, preliminary texts, several reports.
    ("IMPRESSION: b.\nADDENDUM 9:14 no change.", {"impression": "b.", "addendum": "9:14 no change."}),
    ("ADDENDUM BEGINS\nx\nADDENDUM ENDS\n\nFINDINGS: a", {"addendum": "x", "findings": "a"}),
    (
        "FINDINGS: a\nIMPRESSION: b\n\n----------\nADDENDUM #1:\nIMPRESSION: c",
        {"findings": "a", "impression": "b", "addendum": "c"},
    ),
    ("ADDENDUM:\nFINDINGS: a\nIMPRESSION: b\n________________\nSigned", {"findings": "a", "impression": "b\n\nSigned"}),
    ("FINDINGS: a\nPRELIMINARY IMPRESSION: c\nIMPRESSION: b", {"findings": "a", "wet read": "c", "impression": "b"}),
    (" FINAL REPORT\n FINDINGS: a.\n IMPRESSION: b.\n FINAL REPORT\n IMPRESSION: c.", {"impression": "c."}),
    (
        "FINAL REPORT\nFINDINGS: a.\nIMPRESSION: b.\n\nFINAL REPORT\nFINDINGS: c.\nIMPRESSION: d.",
        {"findings": "c.", "impression": "d."},
    ),
]


@pytest.mark.parametrize(("report", "sections"), KNOWN)
def test_sections(report, sections):
    assert split_sections(report) == sections


CHEXPERT = """NARRATIVE:
RADIOGRAPHIC EXAMINATION OF THE CHEST: 1-1-2000
 
CLINICAL HISTORY: 57 years of age, Male, r/o pneumonia.
 
COMPARISON: 1-1-2000.
 
PROCEDURE COMMENTS: Single AP upright view of the chest.
 
FINDINGS:
 
LINES AND TUBES: Right jugular line.
 
IMPRESSION:
 
1.  LINE UNCHANGED.
 
2.  NO EFFUSION.
 
END OF IMPRESSION:
 
SUMMARY: 2-ABNORMAL, PREVIOUSLY REPORTED
 
ACCESSION NUMBER: 000
"""
CHEXPERT_SECTIONS = {
    "examination": "RADIOGRAPHIC EXAMINATION OF THE CHEST: 1-1-2000",
    "history": "57 years of age, Male, r/o pneumonia.",
    "comparison": "1-1-2000.",
    "technique": "Single AP upright view of the chest.",
    "findings": "LINES AND TUBES: Right jugular line.",
    "impression": "1. LINE UNCHANGED.\n\n2. NO EFFUSION.",
    "notification": "SUMMARY: 2-ABNORMAL, PREVIOUSLY REPORTED\nACCESSION NUMBER: 000",
}


def test_a_report_of_chexpert_plus():
    assert split_sections(CHEXPERT) == CHEXPERT_SECTIONS
    in_one_line = {name: collapsed(text) for name, text in split_sections(collapsed(CHEXPERT)).items()}
    assert in_one_line == {name: collapsed(text) for name, text in CHEXPERT_SECTIONS.items()}


def test_a_narrative_without_findings_is_the_findings():
    report = "NARRATIVE:\nTwo views show clear lungs.\n\nIMPRESSION:\nNormal."
    assert split_sections(report) == {"findings": "Two views show clear lungs.", "impression": "Normal."}


def collapsed(text):
    return " ".join(text.split())


def read(report):
    return {name: collapsed(text) for name, text in split_sections(report).items() if name != "preamble"}


def misspelt(report, rng):
    """A letter of FINDINGS, IMPRESSION, INDICATION or COMPARISON is doubled, lost or swapped with the next."""

    def damage(match):
        word, at = match[0], rng.randrange(1, len(match[0]) - 1)
        return rng.choice(
            (
                word[:at] + word[at + 1 :],
                word[:at] + word[at] + word[at:],
                word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            )
        )

    return re.sub(r"(?m)^ (?:FINDINGS|IMPRESSION|INDICATION|COMPARISON)(?=:)", damage, report)


DAMAGES = {
    "none": lambda report, _: report,
    "no space before": lambda report, _: re.sub(r"(?m)^ +", "", report),
    "no space after": lambda report, _: re.sub(r"(?m)^( (?!LUNGS)[A-Z ()/,]+:) +", r"\1", report),
    "mixed case": lambda report, _: re.sub(r"(?m)^ [A-Z ()/,]+:", lambda m: f" {m[0].strip().capitalize()}", report),
    "small letters": lambda report, _: report.lower(),
    "windows": lambda report, _: report.replace("\n", "\r\n"),
    "one line": lambda report, _: collapsed(report),
    "misspelt": misspelt,
    "markdown": lambda report, _: re.sub(r"(?m)^ ((?!LUNGS)[A-Z ()/,]+:)", r"**\1**", report),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_reports_of_known_sections(damage):
    rng = random.Random(1)
    for report, truth in make_reports(300, seed=len(damage)):
        expected = {name: text.lower() for name, text in truth.items()}
        got = {name: text.lower() for name, text in read(DAMAGES[damage](report, rng)).items()}
        assert got == expected, report


def test_a_plain_splitter_agrees_where_headers_are_plain():
    """The truth of `make_reports` is the reading of an independent splitter too."""
    for report, truth in make_reports(200, seed=5):
        if "LUNGS:" not in report:
            plain = [text for name, text in plain_split(report).items() if name != "preamble"]
            assert plain == list(truth.values()), report


def test_mimic_look_alikes_as_the_parser_of_mimic_reads_them():
    expected = json.loads((MIMIC_FOLDER / "expected_sections_mit_parser.json").read_text(encoding="utf-8"))
    for study, theirs in expected.items():
        (path,) = MIMIC_FOLDER.glob(f"files/*/*/{study}.txt")
        ours = {name: collapsed(text) for name, text in split_sections(path.read_text(encoding="utf-8")).items()}
        for name, text in theirs.items():
            if name in ("preamble", "full report"):
                continue  # we part titles, wet reads and addenda from it
            assert ours["findings" if name == "last_paragraph" else name] == text, study
        assert ours.keys() - {"preamble", "wet read", "addendum"} <= {
            {"last_paragraph": "findings", "full report": "findings"}.get(name, name) for name in theirs
        }


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_sections_of_any_text_are_strings_without_outer_space(text):
    for name, body in split_sections(text).items():
        assert name == name.lower()
        assert body
        assert body == body.strip()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "FINDINGS:",
                "Impression:",
                "LUNGS:",
                "ADDENDUM",
                "WET READ:",
                "FINAL REPORT",
                "CHEST, TWO VIEWS:",
                "_" * 20,
                "\n",
                "\n \n",
                *("History:", "NARRATIVE:", "END OF IMPRESSION:", "SUMMARY: 2-A", "a b.", "1. c.", "___", "9:14"),
            ]
        ),
        max_size=14,
    )
)
def test_every_word_is_one_of_the_report(pieces):
    report = " ".join(pieces)
    words = report.split()
    for body in split_sections(report).values():
        assert set(body.split()) <= set(words)


HARD_UNITS = (
    "3. 5 ", "\n", ":", "_", " ", ".", "((((", "<a ", "Dr. ", "1. ", "A B: ", "no effusion ", "IMPRESSION THE LUNG: ",
    "FINDINGS: a\nIMPRESSION: b\n", "OTHER FINDINGS: a\n", "ADDENDUM: a\n", "a\n_______________\n",
    "FINAL REPORT\nFINDINGS: a\n",
)  # fmt: skip


@pytest.mark.parametrize("unit", HARD_UNITS)
@pytest.mark.parametrize("split", [split_sections, split_sentences])
def test_time_grows_with_the_length(split, unit):
    """Four times the text takes far less than the sixteen times of quadratic work."""

    def seconds(characters):
        text = unit * (characters // len(unit)) + "a"
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            split(text)
            best = min(best, time.perf_counter() - start)
        return best

    small, large = seconds(25_000), seconds(100_000)
    assert large < 10 * small + 0.02


def test_ten_megabytes():
    report = "".join(report for report, _ in make_reports(200))
    text = report * (10_000_000 // len(report))
    sections = split_sections(text)
    assert sections["impression"] == split_sections(report)["impression"]
