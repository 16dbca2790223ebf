# SPDX-License-Identifier: Apache-2.0
"""Which files of a library calls need: by names in texts, against what a linker needs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from vendor_trees import EXCLUDED, vendor_tree

from umakit.errors import AcceleratorConfigError, LibraryError
from umakit.machine.accelerator_config import load_accelerator_config
from umakit.machine.config_faults import line_of_value
from umakit.machine.sources_config import SourcesSection
from umakit.registration.sources.needed import NeededFiles, needed_files
from umakit.registration.sources.tree import SourceTree

SMALL = ["-Os", "-w", "-ffunction-sections", "-fdata-sections"]
SEEDS = range(100 if "UMAKIT_EXAMPLES" in os.environ else 1)


def tree_of(root: Path, **keys: Any) -> SourceTree:
    section = SourcesSection(**{"files": ["**/*.c"], **keys})
    return SourceTree("vendor", root, section, root / "accel.toml")


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def needed(root: Path, texts: dict[str, str], call: str, **keys: Any) -> NeededFiles:
    return needed_files(tree_of(written(root, texts), **keys), [call])


# --- against a linker ----------------------------------------------------------------------------


def built(folder: Path, program: Path, sources: list[str], dsp: int, *flags: str) -> Path:
    output = folder.parent / f"{folder.name}.{len(list(folder.parent.iterdir()))}"
    line = ["cc", *SMALL, f"-DV_DSP={dsp}", f"-I{folder / 'Include'}", str(program)]
    subprocess.run(
        [*line, *(str(folder / name) for name in sources), *flags, "-o", str(output)], check=True
    )
    return output


def archive(folder: Path, sources: tuple[str, ...], dsp: int) -> Path:
    """All of a library in one archive, of which a linker takes what it needs."""
    objects = folder.parent / f"objects{dsp}"
    objects.mkdir()
    for number, name in enumerate(sources):
        line = ["cc", *SMALL, f"-DV_DSP={dsp}", f"-I{folder / 'Include'}", "-c"]
        output = ["-o", str(objects / f"member{number}.o")]
        subprocess.run([*line, str(folder / name), *output], check=True)
    path = objects / "all.a"
    subprocess.run(["ar", "rcs", str(path), *map(str, objects.glob("*.o"))], check=True)
    return path


def text_bytes(program: Path) -> int:
    lines = subprocess.run(["size", str(program)], capture_output=True, text=True, check=True)
    return int(lines.stdout.splitlines()[1].split()[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_what_a_linker_needs(seed: int, tmp_path: Path) -> None:
    """The chosen files alone give the program of the whole library, for both cores; none that a
    linker takes from an archive is missing, and few others are chosen."""
    vendor = vendor_tree(tmp_path / "vendor", seed)
    keys = {"files": vendor.files, "exclude": EXCLUDED, "include": ["Include"]}
    tree = tree_of(vendor.root, headers=["Include/vendor.h"], **keys)
    found = needed_files(tree, [vendor.program])
    exported = tmp_path / "exported"
    for name in (*found.sources, *found.included):
        (exported / name).parent.mkdir(parents=True, exist_ok=True)
        (exported / name).write_bytes((vendor.root / name).read_bytes())
    program = tmp_path / "program.c"
    program.write_text(vendor.program)
    for dsp in (0, 1):
        gc = "-Wl,--gc-sections"
        whole = built(vendor.root, program, list(tree.sources), dsp, gc)
        chosen = built(exported, program, list(found.sources), dsp, gc)
        assert text_bytes(chosen) <= 1.1 * text_bytes(whole)
        results = [subprocess.check_output([str(path)]) for path in (whole, chosen)]
        assert results[0] == results[1]
        library = archive(vendor.root, tree.sources, dsp)
        line = ["cc", *SMALL, f"-DV_DSP={dsp}", f"-I{vendor.root / 'Include'}", str(program)]
        trace = subprocess.run(
            [*line, str(library), "-Wl,-t,-t", "-o", str(tmp_path / "linked")],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        taken = {tree.sources[int(number)] for number in re.findall(r"member(\d+)\.o", trace)}
        assert taken <= set(found.sources)
        assert len(found.sources) <= len(taken) + 3


# --- what counts as a use ------------------------------------------------------------------------

HEADER = "int a(int x);\nint b(int x);\nint c(int x);\n"
B, C = (
    '#include "v.h"\nint b(int x) { return x; }\n',
    '#include "v.h"\nint c(int x) { return x; }\n',
)


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("int a(int x) { return b(x); }", {"b.c"}),
        ("int a(int x) { return x; } /* b(x) */ // c(x)", set()),
        ('int a(int x) { return x + sizeof "b(x)"; }', set()),
        ('int a(int x) { __asm__("bl b"); return x; }', {"b.c"}),
        ("#if 0\n#define F b\n#else\n#define F c\n#endif\nint a(int x) { return F(x); }",
         {"b.c", "c.c"}),
        ("#define G(n, x) n ## _8(x)\nint b_8(int x);\nint a(int x) { return G(b, x); }", {"b.c"}),
        ("#define J(p, q) p ## q\nint a(int x) { return J(, b)(x); }", {"b.c"}),
        ("#define K(f) f(x)\n#define L(m) m(b)\nint a(int x) { return L(K); }", {"b.c"}),
        ("static int h(int x) { return b(x); }\nint a(int x) { return x; }", set()),
        ("int a(int x) { return x; }\nint unused(int x) { return c(x); }", {"c.c"}),
        ("int (*const a_table[])(int) = { b };\nint a(int x) { return a_table[0](x); }", {"b.c"}),
        ("int (*a(int x))(int) { return c; }", {"c.c"}),
        ("int a(int x)\n#ifdef Z\n{ if (x) {\n#else\n{ if (0) {\n#endif\nreturn b(x); }}", {"b.c"}),
    ],
)  # fmt: skip
def test_uses(text: str, others: set[str], tmp_path: Path) -> None:
    files = {"v.h": HEADER, "a.c": f'#include "v.h"\n{text}\n', "b.c": B, "c.c": C}
    found = needed(tmp_path, files, "x = a(1);", headers=["v.h"])
    assert set(found.sources) == {"a.c"} | others
    assert found.included == ("v.h",)


def test_inline_functions_of_headers_count_where_they_are_called(tmp_path: Path) -> None:
    header = HEADER + "static inline int s(int x) { return b(x); }\n"
    header += "static inline int t(int x) { return c(x); }\n"
    files = {"v.h": header, "a.c": '#include "v.h"\nint a(int x) { return t(x); }\n',
             "b.c": B, "c.c": C}  # fmt: skip
    assert needed(tmp_path, files, "a(1)", headers=["v.h"]).sources == ("a.c", "c.c")
    assert needed(tmp_path, files, "s(1)", headers=["v.h"]).sources == ("b.c",)


def test_one_name_in_several_files_is_all_of_them(tmp_path: Path) -> None:
    """Each is for one core."""
    dsp = "#if DSP\nint b(int x) { return -x; }\n#endif\n"
    files = {"v.h": HEADER, "b.c": f"#if !DSP\n{B}#endif\n", "dsp/b.c": dsp, "c.c": C}
    assert needed(tmp_path, files, "b(1)", headers=["v.h"]).sources == ("b.c", "dsp/b.c")


def test_includes_are_found_as_compilers_find_them(tmp_path: Path) -> None:
    files = {
        "inc/v.h": '#include <deep/w.h>\n#include "missing.h"\n#ifdef X\n#include "x.h"\n#endif\n',
        "inc/deep/w.h": '#include "w2.h"\n#include <stdint.h>\n',
        "inc/deep/w2.h": "",
        "inc/w2.h": "",
        "src/a.c": "#define CONFIG <deep/config.h>\n#include CONFIG\n"
        '#include "part.inc"\n#include "v.h"\nint a(void) { return 1; }\n',
        "src/part.inc": "",
        "src/unused.inc": "",
        "inc/deep/config.h": "",
    }
    found = needed(tmp_path, files, "a()", files=["src/*.c"], include=["inc"])
    assert found.included == (
        "inc/deep/config.h", "inc/deep/w.h", "inc/deep/w2.h", "inc/v.h", "src/part.inc",
    )  # fmt: skip
    assert found.missing == (("inc/v.h", "missing.h"),)


def test_macros_with_too_many_texts_make_it_the_whole_library(tmp_path: Path) -> None:
    choices = "".join(f"#define F b{number}\n" for number in range(100))
    text = f"{choices}#define J(p, q) p ## q\nint a(int x) {{ return J(F, F)(x); }}\n"
    files = {"a.c": text, "b.c": B, "v.h": HEADER}
    assert needed(tmp_path, files, "a(1)").sources == ("a.c", "b.c")


def test_a_name_that_nothing_reads_changes_nothing(tmp_path: Path) -> None:
    files = {"v.h": HEADER, "a.c": '#include "v.h"\nint a(int x) { return x; }\n', "b.c": B}
    first = needed(tmp_path, files, "a(1)")
    assert first.digest == needed(tmp_path, {}, "b(1)").digest
    files["b.c"] += "\n"
    assert first.digest != needed(tmp_path, files, "a(1)").digest


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "keys", "message"),
    [
        ({"a.c": ""}, {"files": ["src/*.c"]}, "no file below"),
        ({"a.c": "", "b.h": ""}, {"files": ["*"]}, "b.h is not a C or C"),
        ({"a.c": "int a;", "A.c": "int a;"}, {}, "A.c and a.c would be one file"),
        ({"a$.c": "int a;"}, {}, "is not a path that all build tools take"),
        ({"a.c": ""}, {"include": ["inc"]}, "include: there is no folder inc"),
        ({"a.c": ""}, {"headers": ["v.h"]}, "headers: there is no file v.h"),
    ],
)
def test_what_cannot_be_exported_is_named(
    files: dict[str, str], keys: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((AcceleratorConfigError, LibraryError), match=message):
        needed(tmp_path, files, "a", **keys)


def test_what_sections_name_wrongly_is_named_with_its_line(tmp_path: Path) -> None:
    """In a list of several lines, and with a key of the same name in another section."""
    text = '[simulator]\nfiles = ["b.c"]\n[sources]\nlink = []\nfiles = [\n  "a.c",\n  "b.c",\n]\n'
    path = tmp_path / "accel.toml"
    path.write_text(text, encoding="utf-8")
    assert line_of_value(path, "sources", "files", "b.c") == f"{path}:7"
    assert line_of_value(path, "sources", "files", "c.c") == f"{path}:5"
    assert line_of_value(path, "sources", "root") == f"{path}:3"
    assert line_of_value(path, "array", "rows") == str(path)


def test_an_include_outside_of_the_root_is_named(tmp_path: Path) -> None:
    written(tmp_path, {"other.h": "", "lib/a.c": '#include "../other.h"\nint a;\n'})
    with pytest.raises(LibraryError, match=r'includes "../other.h", which lies outside of'):
        needed(tmp_path / "lib", {}, "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[array]\nrows = 1\ncolumns = 1", r"runs on the CPU and has no section \[array\]"),
        ("[sources]", "sources: needs either files or link"),
        ('[sources]\nfiles = ["*.c"]\nlink = ["m"]', "sources: needs either files or link"),
        ('[sources]\nfiles = ["../*.c"]', "is not a path below the folder root"),
        ('[sources]\nfiles = ["*.c"]\nflags = ["-fplugin=x.so"]', "is none of -W"),
        ('[sources]\nfiles = ["*.c"]\nflags = ["-Wl,-x"]', "is none of -W"),
        ('[sources]\nfiles = ["*.c"]\ndefines = { A = "$(rm)" }', "is not a plain value"),
        ('[sources]\nlink = ["-lm"]', "is not the name of a library"),
    ],
)
def test_what_accel_toml_may_not_say_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "accel.toml"
    path.write_text(f'[accelerator]\nname = "v"\nkind = "library"\n{text}\n')
    with pytest.raises(AcceleratorConfigError, match=message):
        load_accelerator_config(path)
