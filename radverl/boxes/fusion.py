"""Several readers' boxes of one finding become one set of boxes: weighted boxes fusion.

After Solovyev, Wang, Gabruseva 2021 (arXiv 1910.13302). Boxes are taken by falling score. Each joins the cluster whose
fused box overlaps it most, if their IoU is above the threshold, else it starts a cluster of its own. The fused box of a
cluster with members b_i of score s_i, and its score, with N readers of the image:

    box = sum(s_i b_i) / sum(s_i)        score = mean(s_i) * min(number of members, N) / N

Readers give no scores, so all of theirs are 1; ties are taken by reader and place, so that no order of a table matters.
Shape legend: N boxes; 4 coordinates xyxy in any space, since IoU is the same in all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from radverl.boxes import iou

FUSIONS = ("wbf", "union", "majority", "none")
IOU_THRESHOLD = 0.5
Box = Sequence[float]


@dataclass
class Cluster:
    """Boxes that are taken for one; `box` is their fused box."""

    box: list[float]
    boxes: list[Box] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    readers: list[str] = field(default_factory=list)

    def add(self, box: Box, score: float, reader: str) -> None:
        """Take in one more box."""
        self.boxes.append(box)
        self.scores.append(score)
        self.readers.append(reader)
        total = sum(self.scores)
        self.box = [sum(s * b[i] for s, b in zip(self.scores, self.boxes, strict=True)) / total for i in range(4)]

    def score(self, readers: int) -> float:
        """The score of the fused box, where so many readers saw the image."""
        return sum(self.scores) / len(self.scores) * min(len(self.scores), readers) / readers

    def hull(self) -> list[float]:
        """The smallest box around all members."""
        low = [min(box[i] for box in self.boxes) for i in (0, 1)]
        return low + [max(box[i] for box in self.boxes) for i in (2, 3)]


def clusters(
    boxes_N4: Sequence[Box],
    readers: Sequence[str],
    scores: Sequence[float] | None = None,
    iou_threshold: float = IOU_THRESHOLD,
) -> list[Cluster]:
    """The boxes in clusters, in the order in which these were started.

    Args:
        readers: who drew each box.
        scores: above 0; 1 by default.
    """
    scores = [1.0] * len(boxes_N4) if scores is None else scores
    rows = sorted(zip(scores, readers, boxes_N4, strict=True), key=lambda row: (-row[0], row[1], tuple(row[2])))
    found: list[Cluster] = []
    for score, reader, box in rows:
        overlaps = [float(value) for value in iou([box], [cluster.box for cluster in found])[0]]
        best = max(range(len(found)), key=overlaps.__getitem__, default=-1)
        if best < 0 or overlaps[best] <= iou_threshold:
            found.append(Cluster(list(box)))
            best = -1
        found[best].add(box, score, reader)
    return found


def fuse(
    boxes_N4: Sequence[Box],
    readers: Sequence[str],
    of: int,
    how: str = "wbf",
    iou_threshold: float = IOU_THRESHOLD,
    min_readers: int = 1,
) -> list[list[float]]:
    """One set of boxes from those of several readers, sorted from left to right.

    Args:
        of: readers who saw the image, whether or not they drew a box.
        how: wbf; union: the smallest box around each cluster; majority: wbf, of clusters that more than half of the
            readers drew; none: every reader's every box.
        min_readers: that must have drawn a cluster, unless `how` is none.
    """
    if how not in FUSIONS:
        raise ValueError(f"fusion is {how!r}; use one of {', '.join(FUSIONS)}.")
    if how == "none":
        return sorted(map(list, boxes_N4))
    least = max(min_readers, of // 2 + 1) if how == "majority" else min_readers
    kept = [c for c in clusters(boxes_N4, readers, None, iou_threshold) if len(set(c.readers)) >= least]
    return sorted(cluster.hull() if how == "union" else cluster.box for cluster in kept)
