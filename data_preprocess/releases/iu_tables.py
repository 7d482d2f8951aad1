"""Kaggle's tables of IU X-ray, and tables that name the view of each film.

Reports: uid, MeSH ("a;b"), Problems, image (the caption), indication, comparison, findings, impression.
Projections: uid, filename (1_IM-0001-4001.dcm.png), projection (Frontal, Lateral).
DICOM headers: imageid (CXR1_1_IM-0001-4001), View Position (PA, AP, LL, blank); wrong for many lateral films.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from data_preprocess.core.candidates import Intake
from data_preprocess.core.skiplog import SkipRow
from data_preprocess.core.tabular import MalformedRow, TableError, cell, open_table
from data_preprocess.core.views import FRONTAL, LATERAL
from data_preprocess.releases.iu_films import film_key
from data_preprocess.releases.iu_forms import Study, subject_of, unescape
from data_preprocess.releases.others import script_of_columns

REPORT_COLUMNS = ("uid", "findings", "impression")
VIEW_TABLES = {  # usual name -> columns of the film and its view
    "indiana_projections.csv": ("filename", "projection"),
    "nlmcxr_dicom_metadata.csv": ("imageid", "View Position"),
}
KAGGLE = VIEW_TABLES["indiana_projections.csv"]


def read_reports(path: Path, projections: Path, intake: Intake) -> list[Study]:
    """The reports of Kaggle's two tables, by number.

    Raises:
        TableError: a table cannot be used.
    """
    _, rows = open_table(path)
    images = _images(projections, intake)
    found: dict[str, list[Study]] = defaultdict(list)
    for number, row in enumerate(rows, 1):
        try:
            if isinstance(row, MalformedRow):
                raise SkipRow(row.detail, "malformed row")
            subject = subject_of(cell(row, "uid"))
            if not subject:
                raise SkipRow(f"uid is {cell(row, 'uid')[:40]!r}, not a number", "unknown id")
            texts = {name: unescape(cell(row, name)) for name in ("findings", "impression", "indication")}
            mesh = [unescape(term.strip()) for term in cell(row, "MeSH").split(";")]
            terms = [term for term in dict.fromkeys(mesh) if term]
            found[subject].append(Study(subject, subject, texts, images.get(subject, []), terms))
        except SkipRow as error:
            intake.add(number, error.reason, str(error))
    if not found and not any(intake.logs.values()):
        raise TableError(f"{path}: has a header and no rows; pass the whole table with --root.")
    for subject in sorted(images.keys() - found.keys()):
        intake.add(subject, "no report", f"{len(images[subject])} films, but no row of the reports")
    studies = []
    for subject in sorted(found):
        # Of several rows the fullest counts, whatever their order.
        best, *others = sorted(found[subject], key=lambda study: (-len("".join(study.texts.values())), str(study)))
        studies.append(best)
        for _ in others:
            intake.add(subject, "duplicate row", "the report has more than one row")
    return studies


def find_projections(reports: Path, option: str | None) -> Path:
    """Kaggle's table of films: beside the reports, else the one of --projections.

    Raises:
        TableError: there is none, or `reports` is no table of reports.
    """
    _require(reports, open_table(reports)[0], REPORT_COLUMNS)
    beside = sorted(p for p in reports.parent.iterdir() if "projections.csv" in p.name.lower() and p.is_file())
    beside = [p for p in beside if not p.name.startswith(".")]
    usual = [p for p in beside if p.name.lower().startswith("indiana_projections.csv")]
    if len(usual) == 1 or len(beside) == 1:
        return (usual or beside)[0]
    if option and set(KAGGLE) <= set(open_table(option)[0]):
        return Path(option)
    raise TableError(f"{reports.parent}: has no indiana_projections.csv to name the films; pass it with --projections.")


def read_views(path: str | Path, intake: Intake, studies: Sequence[Study] | None = None) -> dict[str, str]:
    """The view of each film by `film_key`.

    Args:
        studies: whose films the table should name; None: not checked.
    Raises:
        TableError: the table cannot be used, or names none of the films.
    """
    columns, rows = open_table(path)
    kinds = [pair for pair in VIEW_TABLES.values() if set(pair) <= set(columns)]
    if not kinds:
        _require(path, columns, KAGGLE)
    name, view = kinds[0]
    said: dict[str, set[str]] = defaultdict(set)
    for number, row in enumerate(rows, 1):
        if isinstance(row, MalformedRow):
            intake.add(f"{Path(path).name} row {number}", "malformed row", row.detail)
            continue
        said[film_key(cell(row, name))].add(cell(row, view).upper())
    views = {film: words.pop() if len(words) == 1 else "" for film, words in said.items()}  # two words: nobody knows
    if studies is not None and not any(film_key(image) in views for study in studies for image in study.images):
        raise TableError(f"{path}: names none of the reports' films; pass a table of this release with --projections.")
    return views if (name, view) == KAGGLE else _doubtful(views)


def _doubtful(views: dict[str, str]) -> dict[str, str]:
    """The views of DICOM headers, without those of studies that have several frontal films and no lateral one by them:
    one of these most often is the lateral film."""
    studies: dict[str, list[str]] = defaultdict(list)
    for film in views:
        studies[subject_of(film)].append(film)
    out = dict(views)
    for films in studies.values():
        frontal = [film for film in films if views[film] in FRONTAL]
        if len(frontal) > 1 and not any(views[film] in LATERAL for film in films):
            out |= dict.fromkeys(frontal, "")
    return out


def _images(path: Path, intake: Intake) -> dict[str, list[str]]:
    columns, rows = open_table(path)
    _require(path, columns, ("uid", *KAGGLE))
    images: dict[str, set[str]] = defaultdict(set)
    for number, row in enumerate(rows, 1):
        if isinstance(row, MalformedRow):
            continue  # `read_views` lists it
        subject, name = subject_of(cell(row, "uid")), cell(row, "filename")
        if subject and name:
            images[subject].add(name)
        else:
            message = f"uid is {cell(row, 'uid')[:40]!r} and filename {name[:40]!r}"
            intake.add(f"{path.name} row {number}", "unknown id", message)
    return {subject: sorted(names) for subject, names in images.items()}


def _require(path: str | Path, columns: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [column for column in wanted if column not in columns]
    if not missing:
        return
    other = script_of_columns(columns, "iu_xray")
    if other:
        raise TableError(f"{path}: is not a table of IU X-ray; use data_preprocess.{other}.")
    if set(KAGGLE) <= set(columns):
        raise TableError(f"{path}: is the table of films; pass indiana_reports.csv or its folder with --root.")
    there = ", ".join(columns[:12])
    raise TableError(f"{path}: has no column {missing[0]!r} (it has {there}); pass the table of the Kaggle form.")
