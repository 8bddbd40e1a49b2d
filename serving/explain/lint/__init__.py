"""The log linter: recorded chat requests in, causes of cache misses and their price out."""

from __future__ import annotations

from serving.explain.lint.builder import ReportBuilder
from serving.explain.lint.lines import request_line
from serving.explain.lint.linter import Kept, LintedRequest, Linter, LintOptions, SkippedLine
from serving.explain.lint.reader import LogReader
from serving.explain.lint.replies import ReplyIds
from serving.explain.lint.report import Group, LintReport, Notice
from serving.explain.lint.usage import UsageFlag, UsageProblem

__all__ = [
    "Group",
    "Kept",
    "LintOptions",
    "LintReport",
    "LintedRequest",
    "Linter",
    "LogReader",
    "Notice",
    "ReplyIds",
    "ReportBuilder",
    "SkippedLine",
    "UsageFlag",
    "UsageProblem",
    "request_line",
]
