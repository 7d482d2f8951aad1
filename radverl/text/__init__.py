"""Report text: sections, sentences, de-identification marks, priors, normal form. Standard library only."""

from radverl.text.blanks import apply_blanks
from radverl.text.normal import normalise
from radverl.text.priors import remove_prior_references
from radverl.text.sections import split_sections
from radverl.text.sentences import split_sentences

__all__ = ["apply_blanks", "normalise", "remove_prior_references", "split_sections", "split_sentences"]
