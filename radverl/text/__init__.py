"""Report text: sections, sentences, references to prior studies, normal form. Standard library only."""

from radverl.text.normal import normalise
from radverl.text.priors import remove_prior_references
from radverl.text.sections import split_sections
from radverl.text.sentences import split_sentences

__all__ = ["normalise", "remove_prior_references", "split_sections", "split_sentences"]
