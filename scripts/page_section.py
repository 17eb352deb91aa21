"""The part of a page that a script writes, between two marks."""


class Section:
    def __init__(self, page, begin, end):
        self.page, self.begin, self.end = page, begin, end

    def _parts(self):
        before, rest = self.page.read_text(encoding="utf-8").split(self.begin)
        text, after = rest.split(self.end)
        return before, text, after

    def read(self):
        return self._parts()[1]

    def write(self, text):
        before, _, after = self._parts()
        self.page.write_text(before + self.begin + text + self.end + after, encoding="utf-8")
