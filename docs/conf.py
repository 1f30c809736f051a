"""Sphinx's settings: Markdown pages, no network, no other options."""

project = "loadmanager"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "loadmanager"
html_copy_source = False
html_show_sphinx = False
exclude_patterns = ["_build"]
myst_heading_anchors = 4
