"""The wording of simulated reports, with the fields {side} {grade} {part} {zone} {lobe} {rib} {noun}.

A lobe is "right lower lobe", a zone "right lower lung".
"""

from __future__ import annotations

ORDINAL = {4: "fourth", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth", 9: "ninth"}
DEVICE_NOUN = {"central line": "central venous catheter", "enteric tube": "enteric tube"}
NOUN = {
    "cardiomegaly": "cardiomegaly",
    "mediastinum": "widened mediastinum",
    "edema": "edema",
    "effusion": "effusion",
    "pneumothorax": "pneumothorax",
    "consolidation": "consolidation",
    "pneumonia": "pneumonia",
    "opacity": "opacity",
    "atelectasis": "atelectasis",
    "nodule": "nodule",
    "pleural": "pleural thickening",
    "fracture": "rib fracture",
}
TEMPLATE_NORMAL = "No acute disease."
TEMPLATE_ABSENT = {
    "cardiomegaly": "Normal heart size.",
    "edema": "No edema.",
    "effusion": "No effusion.",
    "pneumothorax": "No pneumothorax.",
    "consolidation": "No consolidation.",
    "nodule": "No nodule.",
}
TEMPLATE_PRESENT = {
    "cardiomegaly": "Enlarged heart.",
    "edema": "Pulmonary edema.",
    "effusion": "{side} pleural effusion.",
    "pneumothorax": "{side} pneumothorax.",
    "consolidation": "{side} {part} lung consolidation.",
    "nodule": "{side} lung nodule.",
    "mediastinum": "Widened mediastinum.",
    "pneumonia": "Patchy {side} pneumonia.",
    "opacity": "Hazy {side} {part} lung opacity.",
    "atelectasis": "Linear {side} atelectasis.",
    "pleural": "Pleural thickening, {side} {part}.",
    "fracture": "Rib fractures, {side}.",
    "device": "Device: {part}.",
}

PRESENT: dict[str, tuple[str, ...]] = {
    "cardiomegaly": (
        "The heart is enlarged.",
        "There is {grade} cardiomegaly.",
        "The heart size is enlarged.",
        "{grade} enlargement of the heart.",
        "Cardiac silhouette is enlarged.",
        "Cardiomegaly is noted.",
    ),
    "mediastinum": (
        "The mediastinum is widened.",
        "There is widening of the mediastinum.",
        "Widened mediastinum.",
        "The upper mediastinum is widened.",
    ),
    "edema": (
        "There is {grade} pulmonary edema.",
        "Perihilar haze consistent with {grade} pulmonary edema.",
        "{grade} interstitial edema.",
        "Pulmonary edema is present, {grade} in degree.",
        "Vascular redistribution and septal lines indicate {grade} pulmonary edema.",
    ),
    "effusion": (
        "There is a {grade} {side} pleural effusion.",
        "{grade} {side} pleural effusion.",
        "A {grade} pleural effusion is seen on the {side}.",
        "{side} pleural effusion, {grade} in size.",
        "Blunting of the {side} costophrenic angle from a {grade} pleural effusion.",
    ),
    "pneumothorax": (
        "There is a {grade} {side} pneumothorax.",
        "{grade} {side} pneumothorax.",
        "A visceral pleural line on the {side} indicates a {grade} pneumothorax.",
        "{side} pneumothorax, {grade} in size.",
    ),
    "consolidation": (
        "There is consolidation in the {lobe}.",
        "{lobe} consolidation.",
        "Dense consolidation of the {lobe} with air bronchograms.",
        "Dense opacity in the {lobe} with air bronchograms, consistent with consolidation.",
        "The {lobe} is consolidated.",
    ),
    "pneumonia": (
        "Patchy opacities throughout the {side} lung consistent with pneumonia.",
        "Multifocal {side} lung pneumonia.",
        "{side} lung bronchopneumonia with patchy involvement of several lobes.",
        "There is multifocal pneumonia in the {side} lung.",
    ),
    "opacity": (
        "There is a hazy opacity in the {zone}.",
        "Ill-defined opacity in the {zone}.",
        "Faint {zone} opacity.",
        "Hazy opacity projects over the {zone}, possible pneumonia.",
        "A vague opacity is seen in the {zone}.",
    ),
    "atelectasis": (
        "Linear atelectasis at the {side} base.",
        "There is {side} basilar atelectasis with a raised hemidiaphragm.",
        "Plate-like atelectasis at the {side} lung base.",
        "{side} basilar subsegmental atelectasis.",
    ),
    "nodule": (
        "There is a nodule in the {zone}.",
        "{zone} nodule.",
        "A rounded nodule projects over the {zone}.",
        "Well-defined pulmonary nodule in the {zone}.",
    ),
    "pleural": (
        "{side} {part} pleural thickening.",
        "There is {part} pleural thickening on the {side}.",
        "Pleural thickening is seen along the {side} {part} chest wall.",
    ),
    "fracture": (
        "Displaced fractures of the {side} {rib} ribs.",
        "There are displaced {side} rib fractures.",
        "Fractures of the {side} {rib} ribs.",
        "Displaced {side} {rib} rib fractures are seen.",
    ),
    "device": (
        "{noun} in place.",
        "{noun} is in standard position.",
        "There is a {noun} in place.",
        "A {noun} is seen.",
    ),
}
BOTH_EFFUSIONS = (
    "There are bilateral pleural effusions.",
    "Bilateral pleural effusions, {grade} in size.",
    "Bilateral {grade} pleural effusions.",
)
ABSENT: dict[str, tuple[str, ...]] = {
    "cardiomegaly": (
        "The heart size is normal.",
        "Heart size is within normal limits.",
        "No cardiomegaly.",
        "The heart is not enlarged.",
    ),
    "mediastinum": ("The mediastinum is not widened.", "The mediastinal contours are normal."),
    "edema": ("No pulmonary edema.", "There is no edema.", "No evidence of pulmonary edema."),
    "effusion": ("No pleural effusion.", "There is no pleural effusion.", "No pleural effusion is seen."),
    "pneumothorax": ("No pneumothorax.", "There is no pneumothorax.", "No evidence of pneumothorax."),
    "consolidation": ("No focal consolidation.", "There is no consolidation.", "No evidence of consolidation."),
    "nodule": ("No pulmonary nodule.", "There is no lung nodule."),
    "fracture": ("No rib fracture.", "There is no acute fracture."),
}
MENTION = {
    "cardiomegaly": 0.75,
    "mediastinum": 0.3,
    "edema": 0.5,
    "effusion": 0.35,
    "pneumothorax": 0.35,
    "consolidation": 0.65,
    "nodule": 0.2,
    "fracture": 0.2,
}
NO_PLEURAL = (
    "No pleural effusion or pneumothorax.",
    "There is no pleural effusion or pneumothorax.",
    "No pneumothorax or pleural effusion is seen.",
)
CLEAR_CHEST = "The lungs are well expanded."
NORMAL = (
    "No acute cardiopulmonary process.",
    "No acute cardiopulmonary abnormality.",
    "No acute cardiopulmonary disease.",
    "Normal chest radiograph.",
)
SUMMARY: dict[str, tuple[str, ...]] = {
    "cardiomegaly": ("Cardiomegaly.", "{grade} cardiomegaly.", "Enlarged heart."),
    "mediastinum": ("Widened mediastinum.", "Mediastinal widening."),
    "edema": ("Pulmonary edema.", "{grade} pulmonary edema."),
    "effusion": ("{side} pleural effusion.", "{grade} {side} pleural effusion."),
    "pneumothorax": ("{side} pneumothorax.", "{grade} {side} pneumothorax."),
    "consolidation": ("{lobe} consolidation.", "Consolidation in the {lobe}."),
    "pneumonia": ("{side} lung pneumonia.", "Multifocal pneumonia on the {side}."),
    "opacity": ("{zone} opacity.", "Hazy opacity in the {zone}."),
    "atelectasis": ("{side} basilar atelectasis.", "Atelectasis at the {side} base."),
    "nodule": ("{zone} nodule.", "Nodule in the {zone}."),
    "pleural": ("{side} pleural thickening.", "{side} {part} pleural thickening."),
    "fracture": ("{side} rib fractures.", "Displaced {side} rib fractures."),
}
