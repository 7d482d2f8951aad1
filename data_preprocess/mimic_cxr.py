"""MIMIC-CXR as Parquet files for verl: one row per study, with its report and the labels of MIMIC-CXR-JPG.

example: all studies with both sections, frontal films, in the official splits
  python -m data_preprocess.mimic_cxr --root mimic-cxr-jpg-2.1.0 --reports mimic-cxr-2.1.0 --out data/mimic_cxr \\
      --max-pixels 401408 --workers 8
  (--max-pixels 401408 is what recipes/orapo_qwen25vl3b.sh expects: 512 tokens a film; larger films pass its limit)
example: the test studies that radiologists labelled
  python -m data_preprocess.mimic_cxr --root mimic-cxr-jpg-2.1.0 --reports mimic-cxr-2.1.0 --out data/mimic_test \\
      --split test --labels mimic-cxr-jpg-2.1.0/mimic-cxr-2.1.0-test-set-labeled.csv

On disk, files/ or what is in it:
  ROOT        mimic-cxr-*-{split,metadata,chexpert,negbio}.csv.gz (or .csv) of MIMIC-CXR-JPG
  IMAGE_ROOT  files/p10/p10000032/s50414267/DICOM_ID.jpg; or .png of a smaller copy, or .dcm of MIMIC-CXR
  REPORTS     files/p10/p10000032/s50414267.txt, which is mimic-cxr-reports.zip of MIMIC-CXR, unpacked
Of a part of the data set, what is there is used; the rest is listed in OUT/SPLIT.skipped.jsonl, and so is all that is
unusable. A film whose ViewPosition is blank is of unknown view, never taken for a frontal one.
Splits: the official ones (validate is val). Labels are those of the whole report, whatever --target.
The same input gives the same files, whatever its order and --workers. A run that was killed goes on where it stopped
when the same command is given again.
Exit status: 0 done, 1 nothing usable (or a damaged study under --no-skip-bad), 2 bad input.
Research only, not for clinical use.
"""

import argparse
import sys
from pathlib import Path

from data_preprocess.core import options, pipeline
from data_preprocess.core.candidates import Candidate, Content, DataSet, Intake
from data_preprocess.core.content import report_content
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.tabular import TableError
from data_preprocess.core.views import choose
from data_preprocess.releases import mimic_files, mimic_tables
from radverl.text import split_sections


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return pipeline.run(DATASET, argv)


def read(args: argparse.Namespace, intake: Intake) -> list[Candidate]:
    """The studies that have the wanted views and labels; nobody opens their reports and images yet.

    Raises:
        TableError: a table or folder cannot be used.
    """
    tables = {kind: mimic_tables.find_table(args.root, kind) for kind in ("split", "metadata")}
    labels = mimic_tables.read_study_labels(args.labels, args.root)
    studies = mimic_tables.read_studies(tables["split"], tables["metadata"], intake)
    if labels is not None and studies and not any(study.study_id in labels for study in studies):
        raise TableError(f"--labels {args.labels}: no row is about a study of {tables['split']}; pass another file.")
    reports = mimic_files.find_reports(args.reports or args.root, studies)
    images = mimic_files.image_tree(args.image_root or args.root)
    thorough = args.check_images != "no"
    ending, first = mimic_files.find_ending(studies, images, args.image_ending, thorough=thorough)
    sized = first is None or mimic_files.size_holds(*first)
    out = []
    for study in studies:
        try:
            films = choose(study.films, args.views, study.row_id)
            known = mimic_tables.known_labels(labels, study)
        except SkipRow as error:
            intake.add(study.row_id, error.reason, str(error), study.split)
            continue
        out.append(
            Candidate(
                row_id=study.row_id,
                subject_id=study.subject_id,
                study_id=study.study_id,
                split=study.split,
                images=tuple(mimic_files.image_path(images, study, film.name, ending) for film in films),
                view=" ".join(film.view or "UNKNOWN" for film in films),
                size=films[0].size if sized else None,
                labels=known,
                payload={"file": mimic_files.report_path(reports, study)},
            )
        )
    return out


def content(drawn: Candidate, args: argparse.Namespace) -> Content:
    """The content of a study, from its report file."""
    sections = split_sections(mimic_files.read_report(drawn.payload["file"]))
    return report_content(sections, args, labels=drawn.labels)


def check(args: argparse.Namespace) -> None:
    """See that the ending is one of a file."""
    if args.image_ending is not None:
        args.image_ending = mimic_files.ending_of(args.image_ending)
    for option in ("root", "reports", "image_root"):
        folder = getattr(args, option)
        if folder is not None and not Path(folder).is_dir():
            what = "is a file; unpack it and pass the folder" if Path(folder).is_file() else "no such folder; pass it"
            raise TableError(f"{folder}: {what} with --{option.replace('_', '-')}.")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this data set alone."""
    add = parser.add_argument
    add("--root", required=True, help="folder with the tables of MIMIC-CXR-JPG")
    add("--reports", help="folder of the text reports of MIMIC-CXR (default: ROOT)")
    add("--image-root", help="folder of the images (default: ROOT)")
    add("--image-ending", metavar="ENDING", help="of the image files: jpg, png, dcm (default: that of the first found)")
    add("--labels", default="chexpert", metavar=mimic_tables.LABELS, help=mimic_tables.LABELS_HELP)
    options.add_view_option(parser)


DATASET = DataSet(
    name="mimic_cxr",
    cohort="mimic",
    tasks=("report",),
    description=__doc__,
    add_options=add_options,
    check=check,
    read=read,
    content=content,
    unwanted=frozenset({"no labels"}),
)

if __name__ == "__main__":
    sys.exit(main())
