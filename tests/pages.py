"""Parsers of HTML pages, which assert that tags are balanced and attributes are unique."""

import base64
import re
from html.parser import HTMLParser

VOID = {"meta", "img", "source", "br", "link"}


class Reader(HTMLParser):
    """Tags, attributes, text and cells of tables; cells omit the text of tags in ``without``."""

    def __init__(self, exclusions):
        super().__init__(convert_charrefs=True)
        self.exclusions = {*exclusions}
        self.open, self.tags, self.attrs, self.text, self.cells = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"<{tag}> has an attribute twice"
        self.tags.append(tag)
        self.attrs += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if {"td", "th"} & set(self.open) and not self.exclusions & set(self.open):
            self.cells[-1][-1] += data


def read(page, exclusions=()):
    reader = Reader(exclusions)
    reader.feed(page)
    reader.close()
    assert not reader.open
    assert not any(name.startswith("on") for name, _ in reader.attrs)
    return reader


def read_complete(page):
    """Return the Reader of a complete page; assert that it fetches nothing and runs no script."""
    reader = read(page)
    assert [reader.tags.count(tag) for tag in ("html", "body", "h1")] == [1, 1, 1]
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(reader.tags)
    ids = [value for name, value in reader.attrs if name == "id"]
    assert len(set(ids)) == len(ids)
    kinds = ("src", "href", "srcset", "xlink:href", "data")
    addresses = [value for name, value in reader.attrs if name in kinds]
    local = {a for a in addresses if not a.startswith("data:image/svg+xml;base64,")}
    assert local | {*re.findall(r"url\(([^)]*)", page)} <= {f"#{name}" for name in ids}
    assert not re.search("@import|http", page)
    return reader


def drawings(page):
    """Return title and SVG of each picture of a page."""
    plot = r'<img class="plot" alt="(.*?)" src="data:image/svg\+xml;base64,(.*?)"'
    pairs = re.findall(plot, page)
    return [(title, base64.b64decode(source).decode()) for title, source in pairs]
