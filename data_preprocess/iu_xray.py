"""IU X-ray (Open-i, Indiana University) as Parquet files for verl: one row per report, from any of its three forms.

example: the form of Kaggle, frontal films, reports with findings and impression
  python -m data_preprocess.iu_xray --root chest-xrays-indiana-university --out data/iu_xray
example: the form of R2Gen with its own splits, both films of a study, as the report generation papers use it
  python -m data_preprocess.iu_xray --root iu_xray --target findings --out data/iu_xray_r2gen

Forms, recognised by what --root holds (or --form):
  openi   ecgen-radiology/*.xml, and NLMCXR_png/ or another folder of films (PNG, or DICOM as downloaded)
  kaggle  indiana_reports.csv, indiana_projections.csv and images/images_normalized/
  r2gen   annotation.json and images/; its reports are one text without headers: --target findings or any
Views: Kaggle's table says frontal or lateral. The XML files and annotation.json do not say, and nothing is guessed:
the XML form needs --projections indiana_projections.csv or --views all; R2Gen's films come in its order, --views all.
DICOM headers (--projections nlmcxr_dicom_metadata.csv) often call the lateral film PA too: where a study has several
frontal films and no lateral one by its headers, all of them count as unknown.
Labels: by our rules from the report; the release has none of the 14. MeSH terms (Open-i, Kaggle): ground_truth "mesh".
Splits: R2Gen's own; else a hash of the report's number, about 7:1:2 as in R2Gen, but other reports. The release names
no patients: a report counts as a subject, so two reports of one patient may be in two splits.
What cannot be used is listed in OUT/SPLIT.skipped.jsonl with the reason. The same input gives the same files.
Exit status: 0 done, 1 nothing usable (or a damaged report under --no-skip-bad), 2 bad input.
Research only, not for clinical use.
"""

import argparse
import sys

from data_preprocess.core import options, pipeline
from data_preprocess.core.candidates import Candidate, Content, DataSet, Intake
from data_preprocess.core.content import report_content, wanted_sections
from data_preprocess.core.reports import findings_and_impression, refuse_empty
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.splits import hash_split
from data_preprocess.core.views import VIEWS, choose
from data_preprocess.releases.iu_films import image_root, read_films
from data_preprocess.releases.iu_forms import FORMS, find_release, image_folder
from data_preprocess.releases.iu_r2gen import read_annotation
from data_preprocess.releases.iu_tables import VIEW_TABLES, find_projections, read_reports, read_views
from data_preprocess.releases.iu_xml import read_xml

VAL_FRACTION, TEST_FRACTION = 0.1, 0.2  # 7:1:2, the shares of R2Gen (arXiv 2010.16056, sec. 4.1)
HEADERLESS = ("any", "findings")  # targets of a report without headers


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return pipeline.run(DATASET, argv)


def check(args: argparse.Namespace) -> None:
    """Find out the form, and with it the views; see that the options fit it.

    Raises:
        TableError: there is no form of IU X-ray.
        ValueError: an option that this form has no answer to.
    """
    args.form = find_release(args.root, args.form).form
    args.views = args.views or ("all" if args.form == "r2gen" else "frontal")
    if args.form == "r2gen":
        if args.target not in HEADERLESS:
            raise ValueError(
                f"R2Gen's reports are one text, not --target {args.target}; pass --target findings (or any)."
            )
        if args.views != "all" or args.projections:
            raise ValueError("R2Gen's form does not say which film is which; pass --views all and no --projections.")
        if (args.val_fraction, args.test_fraction) != (VAL_FRACTION, TEST_FRACTION):
            raise ValueError("R2Gen's form has its own splits; leave out --val-fraction and --test-fraction.")
    if args.form == "openi" and args.views != "all" and not args.projections:
        raise ValueError(
            f"the XML files do not say which film is frontal (--views {args.views}); pass --projections "
            "indiana_projections.csv (of the Kaggle form), or --views all."
        )


def read(args: argparse.Namespace, intake: Intake) -> list[Candidate]:
    """The reports that have the wanted sections and views.

    Raises:
        TableError: a file or folder cannot be used.
    """
    release = find_release(args.root, args.form)
    root = image_root(args.image_root, image_folder(release))
    views: dict[str, str] = {}
    if args.form == "r2gen":
        studies = read_annotation(release.source, intake)
    elif args.form == "kaggle":
        table = find_projections(release.source, args.projections)
        studies = read_reports(release.source, table, intake)
        views = read_views(table, intake)
    else:
        studies = read_xml(release.source, intake)
    if args.projections:
        views |= read_views(args.projections, intake, studies)
    films = read_films(root, views, ordered=args.form == "r2gen")
    for study in studies:
        if study.split in ("val", "test"):
            intake.hold_out(study.subject_id, study.split)
    out = []
    for study in studies:
        split = study.split or hash_split(
            study.subject_id, val_fraction=args.val_fraction, test_fraction=args.test_fraction
        )
        try:
            refuse_empty(*wanted_sections(sections(study.texts), args.target).values())
            chosen = choose(films(study, split, intake), args.views, study.row_id)
        except SkipRow as error:
            intake.add(study.row_id, error.reason, str(error), split)
            continue
        out.append(
            Candidate(
                row_id=study.row_id,
                subject_id=study.subject_id,
                study_id=study.row_id,
                split=split,
                images=tuple(film.path for film in chosen),
                view=" ".join(film.view.upper() or "UNKNOWN" for film in chosen),
                payload={"texts": study.texts} | ({} if study.mesh is None else {"mesh": study.mesh}),
            )
        )
    return out


def content(candidate: Candidate, args: argparse.Namespace) -> Content:
    """The content of a report; its MeSH terms go into the truth."""
    mesh = candidate.payload.get("mesh")
    return report_content(sections(candidate.payload["texts"]), args, extra=None if mesh is None else {"mesh": mesh})


def sections(texts: dict[str, str]) -> dict[str, str]:
    """Sections by name; a text without headers is split as any report is."""
    if "report" not in texts:
        return texts
    findings, impression = findings_and_impression(texts["report"])
    return {"findings": findings, "impression": impression}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this data set alone."""
    add = parser.add_argument
    add("--root", required=True, help="folder of the release, or its indiana_reports.csv or annotation.json")
    add("--form", choices=FORMS, help="which form it is (default: by what is there)")
    add("--image-root", help="folder of the films (default: the one beside the reports)")
    add("--projections", metavar="FILE", help="table of each film's view: " + " or ".join(VIEW_TABLES))
    add("--labels", choices=("rules",), default="rules", help="the 14 labels: by our rules, the only source there is")
    options.add_hash_split_options(parser, val=VAL_FRACTION, test=TEST_FRACTION)
    add(
        "--views", choices=VIEWS,
        help="frontal: one, PA before AP; pair: a frontal and a lateral one where there is\n"
        "(default: frontal; all for the form of R2Gen)",
    )  # fmt: skip


DATASET = DataSet(
    name="iu_xray",
    cohort="openi",
    tasks=("report",),
    description=__doc__,
    add_options=add_options,
    read=read,
    content=content,
    check=check,
)

if __name__ == "__main__":
    sys.exit(main())
