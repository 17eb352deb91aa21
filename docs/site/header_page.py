"""What Doxygen found in a header, as Sphinx's C++ directives."""

import functools
import pathlib
import re
import textwrap
import xml.etree.ElementTree as ElementTree


@functools.cache
def compounds(xml):
    """The files and types of Doxygen's XML by their ids, and the ids of files by their paths."""
    found = {}
    for path in xml.glob("*.xml"):
        for compound in ElementTree.parse(path).getroot().iter("compounddef"):
            found[compound.get("id")] = compound
            if compound.get("kind") == "file":
                found[compound.find("location").get("file")] = compound
    return found


def flat(node):
    return " ".join("".join(node.itertext()).split()) if node is not None else ""


def escaped(text):
    return re.sub(r"([\\*`|_])", r"\\\1", " ".join((text or "").split("\n")))


def inline(node):
    text = flat(node)
    if node.tag == "ref" and re.fullmatch(r"[\w:]+(\(\))?", text):
        return f":cpp:any:`{text} <{text.removesuffix('()')}>`\\ "
    return f"``{text}``\\ " if node.tag in ("computeroutput", "ref") else escaped(text)


def code_block(node):
    for space in node.iter("sp"):
        space.text = " "
    lines = ["".join(line.itertext()) for line in node.iter("codeline")]
    return ".. code-block:: cpp\n   :force:\n\n" + textwrap.indent(textwrap.dedent("\n".join(lines)), "   ")


def prose(node):
    """The paragraphs, lists and code of a description."""
    text = escaped(node.text)
    for child in node:
        if child.tag in ("para", "itemizedlist", "sect1", "programlisting", "listitem"):
            yield from filter(None, [text.strip()])
            text = ""
            if child.tag == "programlisting":
                yield code_block(child)
            elif child.tag == "listitem":
                yield "- " + "\n\n".join(prose(child)).replace("\n", "\n  ")
            else:
                yield from prose(child)
        else:
            text += inline(child)
        text += escaped(child.tail)
    yield from filter(None, [text.strip()])


def description(node):
    return [*prose(node.find("briefdescription")), *prose(node.find("detaileddescription"))]


def directive(kind, signature, node, inside=()):
    domain = "c" if kind == "macro" else "cpp"
    return f".. {domain}:{kind}:: {signature}\n\n" + textwrap.indent("\n\n".join([*description(node), *inside]), "   ")


def template(node):
    parameters = node.find("templateparamlist")
    if parameters is None:
        return ""
    shown = [" ".join(filter(None, [flat(each.find("type")), flat(each.find("declname"))])) +
             "".join(f" = {flat(value)}" for value in each.findall("defval")) for each in parameters]
    return f"template <{', '.join(shown)}> "


def member(node):
    kind, name, type_ = node.get("kind"), node.findtext("name"), flat(node.find("type"))
    arguments = node.findtext("argsstring") or ""
    if kind == "enum":
        values = [directive("enumerator", f"{value.findtext('name')} {flat(value.find('initializer'))}", value)
                  for value in node.findall("enumvalue")]
        return directive("enum-class" if node.get("strong") == "yes" else "enum", name, node, values)
    if kind == "typedef" and not type_.endswith(f" {name}"):  # C names the type of `struct a` also `a`
        return directive("type", f"{template(node)}{name} = {type_}", node)
    if kind == "variable":
        value = flat(node.find("initializer"))
        return directive("var", f"{type_} {name}{arguments} {'' if '{ ' in value else value}", node)  # not the body of a lambda
    if kind == "function" and not name.startswith("~") and not arguments.endswith("=delete"):
        words = [word for word in ("static", "explicit") if node.get(word) == "yes"]
        return directive("function", " ".join([template(node) + " ".join(words), type_, name + arguments]), node)
    if kind == "define" and description(node):
        parameters = ", ".join(flat(part) for part in node.findall("param"))
        return directive("macro", f"{name}({parameters})", node)
    return ""


def line(node):
    return int(node.find("location").get("line"))


def in_order(xml, compound):
    """The public members and types of a file or type, in the order of the header."""
    inner = {flat(ref): compounds(xml)[ref.get("refid")] for ref in compound.findall("innerclass") if ref.get("prot") == "public"}
    types = [node for name, node in inner.items() if "detail::" not in name and name.rpartition("::")[0] not in inner]
    return sorted([*(node for node in compound.iterfind("sectiondef/memberdef") if node.get("prot") == "public"), *types], key=line)


def shown(xml, node):
    return type_of(xml, node) if node.tag == "compounddef" else member(node)


def type_of(xml, compound):
    """A class or struct with its public members."""
    name = compound.findtext("compoundname").rpartition("::")[2]
    bases = ", ".join(flat(base) for base in compound.findall("basecompoundref") if base.get("prot") == "public")
    return directive(compound.get("kind"), f"{template(compound)}{name}{bases and ' : public ' + bases}", compound,
                     filter(None, (shown(xml, node) for node in in_order(xml, compound))))


def header_page(xml, headers):
    """The text of the page on these headers; `xml` is the folder that Doxygen wrote."""
    blocks = []
    for header in headers:
        compound = compounds(xml)[header]
        blocks += description(compound)
        for node in in_order(xml, compound):
            scope = (node.findtext("compoundname") or node.findtext("qualifiedname") or "").rpartition("::")[0]
            blocks.append(f".. cpp:namespace:: {scope or 'NULL'}\n\n{shown(xml, node)}")
    return "\n\n".join(blocks)
