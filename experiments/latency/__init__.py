"""How fast a served model is under load, against what the machine allows: the study behind `ctxlab bench`."""

from __future__ import annotations
