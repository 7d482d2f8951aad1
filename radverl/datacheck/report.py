"""What a data check found."""

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning"]
Found = tuple[Severity, str, str]  # severity, kind, message


class DataFileError(ValueError):
    """A file that cannot be checked at all: missing, or not Parquet."""


@dataclass(frozen=True)
class Problem:
    """One finding: `row` counts from 0 and is None where the whole file is meant; `kind` groups like findings."""

    row: int | None
    severity: Severity
    kind: str
    message: str

    def __str__(self) -> str:
        where = "" if self.row is None else f"row {self.row}: "
        return f"{self.severity}: {where}{self.message}"


@dataclass
class Report:
    """All findings about one file; `ok` where none of them is an error."""

    path: str
    role: str
    rows: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "warning"]

    @property
    def ok(self) -> bool:
        return not self.errors

    def add(self, row: int | None, severity: Severity, kind: str, message: str) -> None:
        self.problems.append(Problem(row, severity, kind, message))

    def lines(self, per_kind: int = 10) -> list[str]:
        """The findings as text, errors first, at most `per_kind` of a kind, and a closing line with the counts."""
        out: list[str] = []
        for group in (self.errors, self.warnings):
            shown: dict[str, int] = {}
            for problem in group:
                shown[problem.kind] = shown.get(problem.kind, 0) + 1
                if shown[problem.kind] <= per_kind:
                    out.append(f"{self.path}: {problem}")
            out += [f"{self.path}: ... and {n - per_kind} more: {kind}" for kind, n in shown.items() if n > per_kind]
        verdict = "clean" if not self.problems else f"{len(self.errors)} errors, {len(self.warnings)} warnings"
        return [*out, f"{self.path}: {self.rows} {self.role} rows, {verdict}"]
