"""The viewer: one HTML page for a capture, or for two beside each other, that needs nothing outside itself."""

from __future__ import annotations

from serving.attention.page.document import render_page, write_page
from serving.attention.page.inline import InlinePage, show
from serving.attention.page.options import viewer_options

__all__ = ["InlinePage", "render_page", "show", "viewer_options", "write_page"]
