"""Context items in, one packet for one model call out."""

from __future__ import annotations
