"""Checks what scripts/wheel says of the machines that a wheel fits: wheel.py ROOT"""

import contextlib
import io
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(sys.argv.pop(1)) / "scripts" / "packages"))
import wheel  # noqa: E402

OLD = ("GLIBC", (2, 2, 5), "memcpy", "bin/a")


class Tag(unittest.TestCase):
    def test_is_that_of_the_newest_symbol_of_the_c_library(self):
        self.assertEqual(wheel.least_tag([OLD, ("GLIBC", (2, 34), "stat", "bin/a"), ("GLIBC", (2, 30), "x", "bin/b")]), 34)

    def test_is_that_whose_cxx_library_has_all_symbols(self):
        for newest, tag in ((11, 17), (19, 17), (20, 24), (28, 31), (29, 34), (30, 35)):
            self.assertEqual(wheel.least_tag([OLD, ("GLIBCXX", (3, 4, newest), "x", "bin/a")]), tag, newest)
        self.assertEqual(wheel.least_tag([OLD, ("GLIBCXX", (3, 4), "x", "bin/a")]), 17)

    def test_that_does_not_exist_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "GLIBCXX_3.4.99"):
            wheel.least_tag([("GLIBCXX", (3, 4, 99), "x", "bin/a")])

    def test_comes_with_the_symbols_that_are_too_new_and_their_files(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            wheel.report([OLD, ("GLIBC", (2, 28), "fine", "bin/a"), ("GLIBC", (2, 34), "stat", "bin/a"),
                          ("GLIBCXX", (3, 4, 29), "spanstream", "bin/b"), ("GLIBCXX", (3, 4, 24), "fine", "bin/b")], 34)
        self.assertEqual(said.getvalue().splitlines(), [
            "symbols that are newer than those of manylinux_2_28: 2", "  GLIBC_2.34  stat  of bin/a",
            "  GLIBCXX_3.4.29  spanstream  of bin/b", "so the wheel is for manylinux_2_34 and newer"])


unittest.main()
