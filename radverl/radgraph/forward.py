"""One pass of radgraph's model over several texts of equal length, and how sure its choices are.

DyGIE takes the texts as sentences of one document. With as many tokens in each, no span is padding and as many spans
are kept for relations as for a text alone, so only the last bits of the scores differ from those of a text alone. A bit
can turn a choice that stands on edge. So with every text come the smallest distances of its choices from their turning:

    margin_ner       best - second score of a label, over the spans
    margin_kept      of a span's score from the last that is kept, or the first that is not
    margin_relation  best - second score of a relation, over the pairs

The last two are over entities alone: what other spans relate to is no part of an annotation. Whoever wants the
annotation of a text alone runs it alone where a margin is within the differences that a batch makes.

Shapes: B texts, S spans, K spans kept, L labels; scores ner_BSL (without the null label, whose score is 0), kept_BS,
relation_BKKL (the null label first); margins_B3 in the order above.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from radverl.radgraph.checkpoint import Built

# Ours: pairs of spans at a time, of 19 KB each with an encoder of BERT-base's size; a text of 400 tokens has these.
MAX_PAIRS = 40_000


@dataclass
class Scores:
    """What the choices are made by."""

    ner: Any
    kept: Any
    relation: Any

    def margins(self) -> Any:
        """margins_B3; infinite where a text has no such choice."""
        import torch
        from torch.nn import functional

        def edge(scores: Any) -> Any:
            best = scores.topk(2, dim=-1).values
            return best[..., 0] - best[..., 1]

        entity_BS = self.ner.amax(-1) > 0
        keep, far = self.relation.shape[1], float("inf")
        kept_B = torch.full((len(entity_BS),), far, device=entity_BS.device)
        if self.kept.shape[1] > keep:
            last_B1, out_B1 = self.kept.topk(keep + 1, dim=1).values[:, keep - 1 :].split(1, dim=1)
            gap_BS = torch.where(self.kept >= last_B1, self.kept - out_B1, last_B1 - self.kept)
            kept_B = gap_BS.masked_fill(~entity_BS, far).amin(1)
        entity_BK = entity_BS.gather(1, self.kept.topk(keep, dim=1).indices.sort(dim=1).values)
        pair_BKK = entity_BK.unsqueeze(1) & entity_BK.unsqueeze(2)
        relation_B = edge(self.relation).masked_fill(~pair_BKK, far).flatten(1).amin(1)
        return torch.stack([edge(functional.pad(self.ner, (1, 0))).amin(1), kept_B, relation_B], dim=1)

    def differences(self, other: "Scores") -> list[float]:
        """Largest absolute difference of each of the three from those of the same texts."""
        pairs = [(self.ner, other.ner), (self.kept, other.kept), (self.relation, other.relation)]
        return [float((mine - its).abs().max()) for mine, its in pairs]


def make_batch(built: Built, texts: Sequence[list[str]], model: str) -> dict[str, Any]:
    """Tensors of a document with these texts, in tokens, as sentences; by radgraph's own reader."""
    from radgraph.allennlp.data import Batch

    document = {"doc_key": "0", "sentences": [list(words) for words in texts], "dataset": model}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of texts of one token, which are right
        instance = built.reader.text_to_instance(document)
    batch = Batch([instance])
    batch.index_instances(built.model.vocab)
    return dict(batch.as_tensor_dict())


def forward(built: Built, batch: dict[str, Any], device: Any = "cpu") -> tuple[list[dict[str, Any]], Scores]:
    """Annotations of the texts of a batch, and the scores they come from."""
    import torch
    from radgraph.utils import batch_to_device, get_entity

    model = built.model
    namespace = batch["metadata"][0].dataset
    kept, ner = [], []
    hooks = [
        model._ner._ner_scorers[f"{namespace}__ner_labels"].register_forward_hook(lambda *seen: ner.append(seen[2])),
        model._relation._mention_pruners[f"{namespace}__relation_labels"]._scorer.register_forward_hook(
            lambda *seen: kept.append(seen[2])
        ),
    ]
    pairs = _PairScores(model._relation)
    try:
        with torch.inference_mode():
            document = model.make_output_human_readable(model(**batch_to_device(batch, device)))
    finally:
        for hook in hooks:
            hook.remove()
        pairs.remove()
    out = []
    for sentence in document:
        start = sentence.sentence_start
        entities = [[s - start, e - start, *rest] for s, e, *rest in (n.to_json() for n in sentence.predicted_ner)]
        relations = [
            [s - start, e - start, t - start, u - start, *rest]
            for s, e, t, u, *rest in (r.to_json() for r in sentence.predicted_relations)
        ]
        found = get_entity(entities, relations, sentence.text)
        out.append({"text": " ".join(sentence.text), "entities": found})
    return out, Scores(ner[0], kept[0].squeeze(-1), pairs.scores)


class _PairScores:
    """Keeps the scores of pairs, and has them made some rows at a time where they would not fit in memory."""

    def __init__(self, relation: Any) -> None:
        self.scores: Any = None
        self._relation = relation
        relation._compute_span_pair_embeddings = lambda spans_BKE: spans_BKE
        relation._compute_relation_scores = self._compute

    def remove(self) -> None:
        del self._relation._compute_span_pair_embeddings, self._relation._compute_relation_scores

    def _compute(self, spans_BKE: Any, mention_scores_BK1: Any) -> Any:
        import torch

        kind = type(self._relation)
        batch, keep = spans_BKE.shape[:2]
        if batch * keep * keep <= MAX_PAIRS:
            pairs_BKKF = kind._compute_span_pair_embeddings(spans_BKE)
            self.scores = kind._compute_relation_scores(self._relation, pairs_BKKF, mention_scores_BK1)
            return self.scores
        namespace = self._relation._active_namespace
        layers = self._relation._relation_feedforwards[namespace], self._relation._relation_scorers[namespace]
        rows = max(1, MAX_PAIRS // (batch * keep))
        parts = []
        for first_BRE in spans_BKE.split(rows, dim=1):
            left = first_BRE.unsqueeze(2).expand(-1, -1, keep, -1)
            right = spans_BKE.unsqueeze(1).expand(-1, first_BRE.shape[1], -1, -1)
            parts.append(layers[1](layers[0](torch.cat([left, right, left * right], dim=3))))
        scores = torch.cat(parts, dim=1)
        scores = scores + (mention_scores_BK1.unsqueeze(-1) + mention_scores_BK1.transpose(1, 2).unsqueeze(-1))
        self.scores = torch.cat([torch.zeros_like(scores[..., :1]), scores], dim=-1)
        return self.scores
