"""Reader of `tests/data/labelled_sentences.txt`."""

from pathlib import Path

CODES = {
    "ECM": "Enlarged Cardiomediastinum",
    "CM": "Cardiomegaly",
    "LO": "Lung Opacity",
    "LL": "Lung Lesion",
    "ED": "Edema",
    "CO": "Consolidation",
    "PN": "Pneumonia",
    "AT": "Atelectasis",
    "PX": "Pneumothorax",
    "PE": "Pleural Effusion",
    "PO": "Pleural Other",
    "FR": "Fracture",
    "SD": "Support Devices",
}
_VALUES = {"+": 1, "-": 0, "?": -1}


def labelled_sentences() -> list[tuple[str, str, dict[str, int]]]:
    """(phenomenon, sentence, label -> 1 | 0 | -1) of every line of the file."""
    out, group = [], ""
    path = Path(__file__).parent / "data" / "labelled_sentences.txt"
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            group = line[3:]
        elif line and not line.startswith("# "):
            sentence, codes = line.rsplit("|", 1)
            out.append((group, sentence.strip(), {CODES[c[:-1]]: _VALUES[c[-1]] for c in codes.split()}))
    return out
