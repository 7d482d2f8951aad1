"""Simulated frontal chest radiographs: anatomy, findings, film, report, regions. No patient's data goes in."""

from data_preprocess.phantom.findings import KINDS, LABEL_KIND, Finding
from data_preprocess.phantom.study import EVEN_PREVALENCE, LONG_TAIL, Study, draw_study
from data_preprocess.phantom.trace import REGION_NAMES

__all__ = ["EVEN_PREVALENCE", "KINDS", "LABEL_KIND", "LONG_TAIL", "REGION_NAMES", "Finding", "Study", "draw_study"]
