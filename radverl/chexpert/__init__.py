"""Offline CheXpert labeller on rules: `label_report(text)`, and `explain(text)` for the span and cue of each label."""

from radverl.chexpert.labeller import Evidence, explain, has_clinical_content, label_report

__all__ = ["Evidence", "explain", "has_clinical_content", "label_report"]
