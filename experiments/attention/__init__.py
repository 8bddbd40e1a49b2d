"""The study `attention`, and what it shares with the command and the lessons: contexts, figures and tables."""

from __future__ import annotations
