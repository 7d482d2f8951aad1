"""Chest ImaGenome as Parquet files for verl: reasoning traces, or where the regions of a film are.

example: traces with the report, for the gated reward (arXiv 2609.31911)
  python -m data_preprocess.chest_imagenome --root chest-imagenome-dataset-1.0.0 --mimic-root mimic-cxr-jpg-2.1.0 \\
      --reports mimic-cxr-2.1.0 --out data/imagenome_trace --max-pixels 524288 --workers 8
example: the 13,000 of its second stage, of patients that a third stage with --train-part 0.15:1 does not see
  (as above) --out data/gated_coldstart --train-part 0:0.15 --limit 13000
example: one region of each of 80,000 films, for the box reward (arXiv 2512.10691)
  python -m data_preprocess.chest_imagenome --root chest-imagenome-dataset-1.0.0 --mimic-root mimic-cxr-jpg-2.1.0 \\
      --task anatomy --out data/imagenome_anatomy --limit 80000 --max-pixels 401408 --workers 8

On disk:
  ROOT        silver_dataset/splits/{train,valid,test,images_to_avoid}.csv and silver_dataset/scene_graph.zip, which
              may be unpacked; gold_dataset/*.txt
  MIMIC_ROOT  mimic-cxr-*-{metadata,split}.csv.gz and files/p10/p10000032/s50414267/DICOM_ID.jpg of MIMIC-CXR-JPG
  REPORTS     files/p10/p10000032/s50414267.txt, which is mimic-cxr-reports.zip of MIMIC-CXR, unpacked (traces only)
A trace is one row a study, on its frontal film, PA before AP, of reports with findings and impression; references to
prior studies are removed from report and regions. A region that no phrase is about is not called normal: it is left
out, or has an empty finding (--regions all); attributes without a phrase are written in words. Boxes are cut to the
image, those without area are dropped; "dropped_boxes" of the ground truth counts them. A region takes about 60 tokens
of Qwen's, so regions for which a response of that paper (1,024 tokens) has no room are left out, abnormal ones last;
"regions_left_out" counts them. A smaller copy of the images will do, one of another shape (cropped, padded) is refused.
Without the metadata table sizes are those of the image files, which then must be the originals.
Splits: traces take those of MIMIC-CXR, as that paper does, where MIMIC_ROOT has its split table; --task anatomy takes
those of Chest ImaGenome, which differ: to train on both, pass --splits-of mimic. Its gold patients and
images_to_avoid.csv are in no split, and must be in no training split of MIMIC-CXR or MS-CXR either: see
data_preprocess/core/guard.py.
The same input gives the same files, whatever its order and --workers. A run that was killed goes on where it stopped
when the same command is given again.
Exit status: 0 done, 1 nothing usable (or a damaged row under --no-skip-bad), 2 bad input.
Research only, not for clinical use.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_preprocess.core import options, pipeline
from data_preprocess.core.candidates import Candidate, Content, DataSet, Intake
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.traces import RESPONSE_TOKENS
from data_preprocess.core.views import Film, choose
from data_preprocess.releases import imagenome_files, imagenome_rows, mimic_files, mimic_tables
from data_preprocess.releases.imagenome_films import SPLITS_OF, read_films
from data_preprocess.releases.mimic_tables import Study


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return pipeline.run(DATASET, argv)


def read(args: argparse.Namespace, intake: Intake) -> list[Candidate]:
    """A trace of each study that has a frontal film with a scene graph, or regions of each such film.

    No graph is opened yet.

    Raises:
        TableError: a table or folder cannot be used.
    """
    silver = imagenome_files.silver_folder(args.root)
    graphs = imagenome_files.find_graphs(silver)
    studies = read_films(silver, args.mimic_root, graphs, args.splits_of, intake)
    reports = mimic_files.find_reports(args.reports or args.mimic_root, studies) if args.task == "trace" else ""
    labels = mimic_tables.read_study_labels(args.labels, args.mimic_root) if args.task == "trace" else None
    images = mimic_files.image_tree(args.mimic_root)
    ending, first = mimic_files.find_ending(studies, images, None, thorough=args.check_images != "no")
    sized = first is None or mimic_files.size_holds(*first)
    out = []
    for study in studies:
        try:
            known = mimic_tables.known_labels(labels, study)
        except SkipRow as error:
            intake.add(study.row_id, error.reason, str(error), study.split)
            continue
        for film, row_id, task in _rows(study, args):
            place = graphs.place(film.name)
            assert place
            graph = {"file": place[0], "member": place[1], "image": film.name, "size": film.size}
            if reports:
                task["report"] = mimic_files.report_path(reports, study)
            out.append(
                Candidate(
                    row_id=row_id,
                    subject_id=study.subject_id,
                    study_id=study.study_id,
                    split=study.split,
                    images=(mimic_files.image_path(images, study, film.name, ending),),
                    view=film.view,
                    size=film.size if sized else None,
                    labels=known,
                    payload=graph | task,
                )
            )
    return out


def content(drawn: Candidate, args: argparse.Namespace) -> Content:
    """The content of a row, from its scene graph and report file."""
    return (imagenome_rows.trace_content if args.task == "trace" else imagenome_rows.anatomy_content)(drawn, args)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this data set alone."""
    add = parser.add_argument
    add("--root", required=True, help="folder chest-imagenome-dataset-1.0.0")
    add("--mimic-root", required=True, help="folder of MIMIC-CXR-JPG: images and metadata table")
    add("--reports", help="folder of the text reports of MIMIC-CXR (default: MIMIC_ROOT); for traces")
    add("--labels", default="rules", metavar=mimic_tables.LABELS, help=mimic_tables.LABELS_HELP + "; for traces")
    add(
        "--splits-of", choices=SPLITS_OF,
        help="whose splits: Chest ImaGenome's own, or those of MIMIC-CXR (default of traces, with its split table)",
    )  # fmt: skip
    add(
        "--regions", choices=imagenome_rows.REGIONS, default="with-findings",
        help="of a trace: those that a phrase is about (default), or all that have a box",
    )  # fmt: skip
    add(
        "--max-regions", type=options.positive, metavar="N",
        help="of a trace: at most N, abnormal ones first (default: what --max-response-length has room for)",
    )  # fmt: skip
    add(
        "--max-response-length", type=options.positive, default=RESPONSE_TOKENS, metavar="TOKENS",
        help="of a trace, by an estimate that is rather too high (default: %(default)s, as the paper's GRPO)",
    )  # fmt: skip
    add(
        "--regions-per-image", type=options.positive, default=1, metavar="N",
        help="of --task anatomy: N rows an image, drawn by hash (default: %(default)s)",
    )  # fmt: skip


def settle_splits(args: argparse.Namespace) -> None:
    """Whose splits a run takes that does not say."""
    if args.splits_of:
        return
    args.splits_of = "imagenome"
    root = Path(args.mimic_root)
    if args.task != "trace" or not root.is_dir():
        return
    if any(root.glob("mimic-cxr-*-split.csv*")):
        args.splits_of = "mimic"
    else:
        why = f"{root} has no mimic-cxr-*-split.csv.gz"
        print(f"chest_imagenome: {why}, so the splits are those of Chest ImaGenome.", file=sys.stderr)


def _rows(study: Study, args: argparse.Namespace) -> Iterator[tuple[Film, str, dict[str, Any]]]:
    """Film and id of each row of a study, and what of the film it is about."""
    if args.task == "trace":
        yield choose(study.films, "frontal", study.row_id)[0], study.row_id, {}
        return
    for film in study.films:
        for number in range(args.regions_per_image):
            yield film, f"{study.row_id}/{film.name}/{number:02d}", {"number": number}


DATASET = DataSet(
    name="chest_imagenome",
    cohort="mimic",
    tasks=("trace", "anatomy"),
    description=__doc__,
    add_options=add_options,
    read=read,
    content=content,
    check=settle_splits,
    unwanted=imagenome_rows.UNWANTED | {"no labels"},
    leak_hint="--splits-of mimic takes the splits of MIMIC-CXR",
)

if __name__ == "__main__":
    sys.exit(main())
