"""User texts of the tasks, in our own words; of several wordings a row's id decides, so every run writes the same.

A grounding prompt has one placeholder, {name}: the region, the finding or the phrase.
"""

import hashlib
from collections.abc import Sequence

BOX_FORM = " Answer with boxes [x1, y1, x2, y2] in 0 to 1 of the image width and height, or None."
ANATOMY = (
    "Where is the {name} in this chest radiograph?",
    "Locate the {name}.",
    "Draw a box around the {name}.",
    "Give the position of the {name} in this image.",
    "Mark the {name} on this radiograph.",
    "Show me the {name}.",
    "Find the {name} in the image and box it.",
    "Which part of this film shows the {name}?",
    "Outline the {name} with a box.",
    "Point out the {name} on this chest X-ray.",
    "Box the region of the {name}.",
    "In this chest X-ray, where does the {name} lie?",
)
ABNORMALITY = (
    "Find every {name} in this chest radiograph.",
    "Where is there {name}?",
    "Mark all signs of {name} on this film.",
    "Locate the {name}, if there is any.",
    "Box each area that shows {name}.",
    "Is there {name}? Show where.",
    "Search this chest X-ray for {name} and give its position.",
    "Point out any {name} in the image.",
    "Which regions of this radiograph show {name}?",
    "Draw boxes around all {name}.",
    "Look for {name} and mark what you find.",
    "Give the position of each {name} on this X-ray.",
)
PHRASE = (
    'Where in this chest radiograph is this seen: "{name}"?',
    'Locate what is described: "{name}".',
    'Mark the region that this phrase is about: "{name}".',
    'The report says "{name}". Show where.',
    'Find the finding "{name}" in the image.',
    'Draw a box around: "{name}".',
    'Point out on the film what "{name}" refers to.',
    'Which part of this X-ray supports the statement "{name}"?',
    'Give the position of this finding: "{name}".',
    'Box the evidence for "{name}".',
    'Ground this phrase in the image: "{name}".',
    'A radiologist wrote "{name}". Where is it?',
)
GROUNDING = {"anatomy": ANATOMY, "abnormality": ABNORMALITY, "phrase": PHRASE}


def report_prompt(sections: Sequence[str]) -> str:
    """The text that asks for these sections of a report."""
    return f"Write the {' and '.join(sections)} of this chest radiograph."


def trace_prompt(sections: Sequence[str]) -> str:
    """The text that asks for a trace (`data_preprocess.core.traces`), then these sections of a report."""
    return (
        'Inside <think>, list the regions of this chest radiograph as JSON: [{"region": name, "box": [x0, y0, x1, y1] '
        'in 0 to 1 of the image width and height, "finding": what is seen there}, ...]. Then write the '
        f"{' and '.join(sections)} inside <answer>."
    )


def wording(texts: Sequence[str], row_id: str) -> str:
    """One of the texts, chosen by the SHA-256 of `row_id`."""
    digest = hashlib.sha256(row_id.encode("utf-8", "surrogatepass")).digest()
    return texts[int.from_bytes(digest[:8], "big") % len(texts)]
