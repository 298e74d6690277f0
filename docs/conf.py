"""How Sphinx builds this documentation."""

import sys
from pathlib import Path

from kombu_delayq import __version__

project = "kombu-delayq"
author = "the kombu-delayq maintainers"
project_copyright = f"2026, {author}"
release = version = __version__

sys.path.insert(0, str(Path(__file__).parent))
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "llms"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "examples"]

# The data source for Spark is documented where Spark is not installed.
autodoc_mock_imports = ["pyarrow", "pyspark"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_google_docstring = True
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"kombu-delayq {version}"
