"""The site, by Sphinx: scripts/docs runs it on what pages.py lays out."""

import re

from docutils import nodes
from sphinx import addnodes
from sphinx.domains.cpp import CPPDomain

project = "lockstep"
root_doc = "README"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
include_patterns = ["*.md", "docs/*.md", "tests/**.md", "benchmarks/**.md", "template/*.md", "api/**"]
myst_heading_anchors = 4
smartquotes = False
add_function_parentheses = False
cpp_maximum_signature_line_length = 80
toc_object_entries = False
html_theme = "furo"
html_title = "lockstep"
html_static_path = html_css_files = ["site.css"]
html_use_index = html_show_sphinx = html_show_copyright = html_copy_source = False

CONTENTS = {
    "Guides": "first-hour from-ddp from-accelerate data precision memory activation-checkpointing ema contrastive-losses "
              "collectives-in-closures python-models embedding gpu slurm local-updates reliability security troubleshooting",
    "Reference": "migration options glossary snapshot-format building dependencies architecture",
    "Evidence": "performance workloads exactness predict",
}


class Names(CPPDomain):
    """C++, of which search does not list parameters."""

    def get_objects(self):
        return (found for found in super().get_objects() if not found[2].endswith("Param"))


def toctree(caption, *pages):
    return "\n".join(["\n```{toctree}", ":hidden:", ":glob:", f":caption: {caption}", "", *pages, "```\n"])


def read_source(app, docname, text):
    if docname == root_doc:
        for caption, names in CONTENTS.items():
            text[0] += toctree(caption, *(f"/docs/{name}" for name in names.split()))
        text[0] += toctree("Public headers", "/api/**index") + toctree("Contributing", "/CONTRIBUTING", "/CHANGELOG")
    elif docname.startswith(("tests/", "benchmarks/", "template/")):  # what guides link to, and no search shall find
        text[0] = "---\norphan: true\nnosearch: true\n---\n" + text[0]


def link_names(app, doctree):
    """A type or member of lockstep that a guide names in `backticks` leads to its header's page."""
    for name in doctree.findall(nodes.literal):
        found = re.fullmatch(r"(?:lockstep::)?([A-Z]\w+(?:::\w+)*)(?:\(\))?", name.astext())
        if found and isinstance(name.parent, (nodes.paragraph, nodes.entry)):
            target = addnodes.pending_xref("", name.deepcopy(), refdomain="cpp", reftype="any", refwarn=False,
                                           refdoc=app.env.docname, reftarget=f"lockstep::{found[1]}")
            name.replace_self(target)


def setup(app):
    app.add_domain(Names, override=True)
    app.connect("source-read", read_source)
    app.connect("doctree-read", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
