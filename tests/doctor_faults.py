# SPDX-License-Identifier: Apache-2.0
"""Faults that are put into copies of backends, what `uma doctor` says, and how that is applied."""

from __future__ import annotations

import ast
import contextlib
import difflib
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from umakit.tools.doctor import Check, Diagnosis, Status

BACKENDS = Path(__file__).parents[1] / "backends"
NAMES = ("vanilla_accelerator", "strawberry_accelerator", "chocolate_accelerator")
VANILLA, STRAWBERRY, CHOCOLATE = NAMES


@dataclass(frozen=True)
class Mutation:
    """A fault that is put into a copy of a backend.

    Attributes:
        label: what is broken.
        backend: name of the backend.
        file: the file that is changed.
        old, new: texts; the first `old` is replaced. An empty `old` deletes the file.
        check: regular expression of the name of the check that must fail.
        shown: regular expression in what it says, place included.
        mend: regular expression in what it says is to be done.
        status: of the fault.
        also: other files, old and new texts; without an old text the file is written.
    """

    label: str
    backend: str
    file: str
    old: str
    new: str
    check: str
    shown: str
    mend: str
    status: Status = Status.ERROR
    also: tuple[tuple[str, str, str], ...] = ()

    def apply(self, folder: Path) -> None:
        """Change the copy of the backend in a folder."""
        path = folder / self.file
        if not self.old:
            path.unlink()
            return
        text = path.read_text(encoding="utf-8")
        assert self.old in text, f"{self.label}: {self.file} has no {self.old!r}"
        path.write_text(text.replace(self.old, self.new, 1), encoding="utf-8")
        for name, old, new in self.also:
            text = (folder / name).read_text(encoding="utf-8") if old else ""
            assert old in text
            (folder / name).write_text(text.replace(old, new, 1) if old else new, encoding="utf-8")

    def named(self, diagnosis: Diagnosis) -> Check | None:
        """The check that says what is broken and what to do; None if none does."""
        found = (
            check
            for check in diagnosis.checks
            if re.fullmatch(self.check, check.name)
            and check.status is self.status
            and re.search(self.shown, f"{check.where}: {check.message}") is not None
            and re.search(self.mend, check.mend) is not None
        )
        return next(found, None)


C, H = "conv2dnchw.c", "conv2dnchw.h"
SC, SH = f"{STRAWBERRY}.c", f"{STRAWBERRY}.h"
CC, CH = f"{CHOCOLATE}.c", f"{CHOCOLATE}.h"
RUN = "vanilla_accelerator_conv2dnchw"

LATER = """\
static inline int now(void)
{
    return later(); }
int later(void);
"""
DRIVER = f"""\
#include "{H}"

void *{VANILLA}_device(void);

int {RUN}(const float *ifmap, const float *weights, float *result,
          int oc, int iw, int ih, int ic, int kh, int kw)
{{
    for (int o = 0; o < oc; ++o) {{
        for (int place = 0; place < ih * iw; ++place) {{
            float sum = 0.0f;
            for (int step = 0; step < ic * kh * kw; ++step) {{
                const int y = place / iw + step / kw % kh - (kh - 1) / 2;
                const int x = place % iw + step % kw - (kw - 1) / 2;
                if (y >= 0 && y < ih && x >= 0 && x < iw) {{
                    sum += ifmap[(step / (kh * kw) * ih + y) * iw + x] *
                           weights[o * ic * kh * kw + step];
                }}
            }}
            result[o * ih * iw + place] = sum;
        }}
    }}
    return {VANILLA}_device() ? 0 : 1;
}}
"""
ON_CPU = (
    (C, "", DRIVER),
    (H, "", f"#pragma once\nint {RUN}(const float *ifmap, const float *weights, float *result,\n"
     "    int oc, int iw, int ih, int ic, int kh, int kw);\n"),
)  # fmt: skip
"""A driver that needs a device, and computes without."""

OTHER_HEADER = ("backend.py", f'headers=["{H}"]', f'headers=["{H}", "other.h"]')

MUTATIONS = (
    Mutation("a source is deleted", VANILLA, C, "", "",
             "driver files", rf"{C}: does not exist", "^write it$"),
    Mutation("a header is deleted", VANILLA, H, "", "",
             "driver files", rf"{H}: does not exist", "^write it$"),
    Mutation("accel.toml is deleted", VANILLA, "accel.toml", "", "",
             "accel.toml", "accel.toml: no such file", "uma new"),
    Mutation("a module is deleted", VANILLA, "passes.py", "", "",
             "backend", r"ModuleNotFoundError: .*backend\.py:\d+\)", r"write .*passes\.py"),
    Mutation("a function has another name in the header", VANILLA, H, RUN, f"{RUN}2",
             "driver calls", rf"passes\.py:\d+: pattern conv2d call {RUN}, which no header",
             rf"^rename {RUN}2 \(.*{H}:\d+\) to {RUN}, which .*{C}:\d+ defines$"),
    Mutation("a function has another name in the source", VANILLA, C, f"int {RUN}(",
             f"int {RUN}_2(", "link", rf"{H}:\d+: pattern conv2d call {RUN}, which no source",
             rf"rename {RUN}_2 \(.*{C}:\d+\)"),
    Mutation("a function has another name in the pass", VANILLA, "passes.py", RUN, f"{RUN}s",
             "driver calls", rf"passes\.py:\d+: pattern conv2d call {RUN}s, which no header",
             rf"^write {RUN} \(.*{H}:\d+\), which no pattern calls$"),
    Mutation("a call lacks an argument", VANILLA, "passes.py", "*pointers, oc, ", "*pointers, ",
             "driver calls", rf"{H}:\d+: .*{RUN} with 8 arguments, it is declared with 9",
             r"the call in .*passes\.py:\d+ agree"),
    Mutation("the header lacks an argument", VANILLA, H, "int iw, ", "",
             "driver calls", rf"{H}:\d+: .* with 9 arguments, it is declared with 8", "agree"),
    Mutation("header and source differ", VANILLA, H, "int iw, ", "",
             "driver sources", rf"{C}:\d+: conflicting types for '{RUN}'",
             rf"give {RUN} the same type here and in .*{H}:\d+"),
    Mutation("TOML is broken", VANILLA, "accel.toml", "rows = 8", "rows = ",
             "accel.toml", r"accel\.toml:8: is not valid TOML", "correct it"),
    Mutation("a key is misspelt", VANILLA, "accel.toml", "columns = 8", "colums = 8",
             "accel.toml", r"accel\.toml:9: array\.columns: is missing",
             "write columns instead of colums"),
    Mutation("a value is out of range", VANILLA, "accel.toml", "rows = 8", "rows = 0",
             "accel.toml", r"accel\.toml:8: array\.rows", "correct it"),
    Mutation("there is no such simulator", VANILLA, "accel.toml", '"mac_array"', '"mac"',
             "accel.toml", r"accel\.toml:13: device\.simulator", "correct it"),
    Mutation("the simulator is left out", VANILLA, "accel.toml", 'simulator = "mac_array"', "",
             "driver sources", rf"{H}:\d+: umakit/device.h", "set simulator in"),
    Mutation("accel.toml is of another backend", VANILLA, "accel.toml", f'"{VANILLA}"', '"other"',
             "accel.toml", r"accel\.toml.*describes other", "accelerator.name"),
    Mutation("Python has a syntax error", VANILLA, "patterns.py", "return True", "return return",
             "backend", r"patterns\.py:\d+: syntax error", "correct this line"),
    Mutation("a phase does not exist", VANILLA, "backend.py", "TIR_PHASE_0", "TIR_PHASE_9",
             "backend", r"TIR_PHASE_9.*backend\.py:\d+", "PRE_PARTITIONING, .*TIR_PHASE_0"),
    Mutation("a phase is of the other kind", VANILLA, "backend.py", "TIR_PHASE_0",
             "PRE_PARTITIONING", "backend", "PRE_PARTITIONING is a Relax phase",
             "_register_relax_pass"),
    Mutation("a phase is a string", VANILLA, "backend.py", "PassPhase.TIR_PHASE_0", '"TIR_PHASE_0"',
             "backend", "'TIR_PHASE_0' is no phase", "PassPhase.TIR_PHASE_0"),
    Mutation("a pass is a function", VANILLA, "passes.py",
             'tir.prim_func_pass("VanillaConv2DPass", replace_convolution)', "replace_convolution",
             "passes", "replace_convolution in TIR_PHASE_0 is no pass", "tir.prim_func_pass"),
    Mutation("an include is missing in the source", VANILLA, C, f'#include "{H}"', "",
             "driver sources", rf"{C}:\d+: .*{VANILLA}_device",
             rf"include the header that declares it \(.*{H}:\d+\)"),
    Mutation("an include does not exist", VANILLA, C, f'#include "{H}"', '#include "conv2dnch.h"',
             "driver sources", rf"{C}:\d+: conv2dnch.h", f"include {H}"),
    Mutation("generated C includes a file that does not exist", VANILLA, "codegen.py", H, "no.h",
             "driver calls", r"codegen\.py:\d+: what _register_codegen.*: no\.h", "write it"),
    Mutation("the header is not registered", VANILLA, "backend.py", f'headers=["{H}"]',
             "headers=[]", "driver sources", rf"{C}:\d+: {H}", "_register_driver\\(headers="),
    Mutation("the source is not registered", VANILLA, "backend.py", f'sources=["{C}"]',
             "sources=[]", "link", f"call {RUN}, which no source", f"{C} defines it: _register_"),
    Mutation("C has a syntax error", VANILLA, C, "umakit_device *device;",
             "umakit_device *device", "driver sources", rf"{C}:\d+: expected", "correct this line"),
    Mutation("the source calls what is not there", VANILLA, C, f"int {RUN}(",
             f"int helper(void);\nint {RUN}_x(void);\nint {RUN}_x(void) {{ return helper(); }}\n"
             f"int {RUN}(", "link", rf"{C}:\d+: calls helper, which nothing defines", "define it"),
    Mutation("the pass raises", VANILLA, "passes.py", "ifmap, weights, result = function.params",
             "ifmap, weights = function.params", "patterns", r"ValueError.*passes\.py:\d+",
             "correct the pass"),
    Mutation("the predicate raises", VANILLA, "patterns.py", "convolution = context.matched_expr",
             "convolution = context.matched", "patterns", r"AttributeError.*patterns\.py:\d+",
             "correct the line"),
    Mutation("the result is wrong", VANILLA, "passes.py", "oc, iw, ih, ic, kh, kw]))",
             "oc, iw, ih, ic - 1, kh, kw]))", "first network", "instead of", "uma diff"),
    Mutation("the time limit is too short", VANILLA, C, "TIMEOUT_CYCLES 4000000000u",
             "TIMEOUT_CYCLES 1u", "first network", r"layer \d+, .*status 7: timeout",
             "umakit_device_wait: .*or raise that limit"),
    Mutation("an axis has another name", CHOCOLATE, "passes.py",
             "def compute(position: Any) -> Any:\n",
             'def compute(position: Any) -> Any:\n        assert position["width"] == 0\n',
             "patterns",
             r"there is no axis width; axes are images, .* \(.*passes\.py:\d+", "correct the pass"),
    Mutation("a tensor is not loaded by tiles", CHOCOLATE, "passes.py", "tiles.load(tensor,",
             'tiles.load("parameters",', "patterns",
             r"there is no load of parameters; .*passes\.py:\d+", "correct the pass"),
    Mutation("a block has another name", CHOCOLATE, "passes.py", '"compute": compute',
             '"computes": compute', "patterns", "there is no block computes; blocks are load_data,",
             "correct the pass"),
    Mutation("a memory is removed", STRAWBERRY, "accel.toml", "[[memory]]", "[memory]",
             "accel.toml", r"accel\.toml:\d+: memory", "correct it"),
    Mutation("a memory has another name", STRAWBERRY, "accel.toml", 'name = "scratchpad"',
             'name = "sram"', "memories", r"accel\.toml: .*use a scratchpad 'scratchpad'",
             r'name sram in .*passes\.py:\d+, or write name = "scratchpad" in place of sram'),
    Mutation("code uses a memory of another name", CHOCOLATE, "passes.py", '"int8", "scratchpad"',
             '"int8", "spm"', "memories", "use a scratchpad 'spm'", "^name scratchpad in .*passes"),
    Mutation("a copy is not declared", STRAWBERRY, "backend.py", "load=DMA_IN", 'load="dma_on"',
             "driver calls", "_register_transfers call dma_on", "declare it in"),
    Mutation("a transfer function has another name in the header", STRAWBERRY, SH,
             "strawberry_accelerator_dma_out(", "strawberry_accelerator_dma_ou(",
             "driver calls", r"passes\.py:\d+: .*strawberry_accelerator_dma_out, which no header",
             "rename strawberry_accelerator_dma_ou "),
    Mutation("the completion is not defined", CHOCOLATE, CC, "int chocolate_accelerator_finish(",
             "int chocolate_accelerator_finished(", "link",
             "chocolate_accelerator_finish, which no source", "chocolate_accelerator_finished"),
    Mutation("the call of one pattern lacks an argument", CHOCOLATE, "passes.py",
             "[added.zero_points[1], added.left_shift,", "[added.left_shift,", "driver calls",
             rf"{CH}:\d+: pattern qconv2d_add call .*_configure_add with 10 arguments, .* 11",
             "agree"),
    Mutation("the header has another number of arguments", CHOCOLATE, CH,
             "int32_t columns, enum", "enum", "driver calls",
             rf"{CH}:\d+: .*_begin with 2 arguments, it is declared with 1 argument", "agree"),
    Mutation("a scratchpad is missing for the simulator", CHOCOLATE, "accel.toml",
             'address = "offset"', "", "accel.toml", "needs one", "correct it"),
    Mutation("a source is registered by another name", VANILLA, "backend.py", f'sources=["{C}"]',
             'sources=["conv2dnhwc.c"]', "driver files", r"conv2dnhwc\.c: does not exist",
             f"^write {C} in _register_driver"),
    Mutation("two headers define a name", VANILLA, C, f'#include "{H}"',
             f'#include "{H}"\n#include "other.h"', "driver sources",
             rf"other\.h:\d+: conflicting types for '{VANILLA}_device'",
             rf"^rename {VANILLA}_device in one of the two headers, or remove one .*: .*{H}:\d+$",
             also=(("other.h", "", f"int {VANILLA}_device(int number);\n"), OTHER_HEADER)),
    Mutation("a header is read twice", VANILLA, C, f'#include "{H}"',
             f'#include "{H}"\n#include "other.h"\n#include "other.h"', "driver sources",
             r"other\.h:\d+: redefinition of", "^let the header be read once: .*#pragma once$",
             also=(("other.h", "", "struct pair {\n    int first, second;\n};\n"), OTHER_HEADER)),
    Mutation("a header lacks one of C", VANILLA, C, f'#include "{H}"',
             f'#include "other.h"\n#include "{H}"', "driver sources",
             r"other\.h:1: unknown type name 'int32_t'", "^#include <stdint.h>, which defines it$",
             also=(("other.h", "", "int32_t other(int32_t value);\n"), OTHER_HEADER)),
    Mutation("a header lacks one of umakit", VANILLA, C, f'#include "{H}"',
             f'#include "other.h"\n#include "{H}"', "driver sources",
             r"other\.h:1: unknown type name 'umakit_device'",
             '^#include "umakit/device.h", which defines it$',
             also=(("other.h", "", "int other(umakit_device *device);\n"), OTHER_HEADER)),
    Mutation("a type is not defined", VANILLA, C, "static bool is_busy(",
             "static word_of_four other(void);\nstatic bool is_busy(", "driver sources",
             rf"{C}:\d+: unknown type name 'word_of_four'",
             "^define it above this line, or include the header that defines it$"),
    Mutation("a name is one of umakit", VANILLA, C, "static bool is_busy(",
             "int umakit_device_wait(void);\nstatic bool is_busy(", "driver sources",
             rf"{C}:\d+: conflicting types for 'umakit_device_wait'",
             r"^rename umakit_device_wait: umakit/device\.h declares it, too$"),
    Mutation("a call has too few arguments", VANILLA, C, "static bool is_busy(",
             "int add_two(int a, int b);\nint add_one(int a);\n"
             "int add_two(int a, int b) { return a + b; }\n"
             "int add_one(int a) { return add_two(a); }\nstatic bool is_busy(", "driver sources",
             rf"{C}:\d+: too few arguments to function 'add_two'",
             rf"^make this call and the declaration in .*{C}:\d+ agree$"),
    Mutation("a function of umakit is misspelt", VANILLA, C, "umakit_device_barrier(device); /*",
             "umakit_device_barier(device); /*", "driver sources",
             rf"{C}:\d+: .*'umakit_device_barier'", "^write umakit_device_barrier, or define"),
    Mutation("a function is declared below", VANILLA, C, "static bool is_busy(",
             "int below(void);\nint above(void);\nint above(void) { return belo(); }\n"
             "int below(void) { return 0; }\nstatic bool is_busy(", "driver sources",
             rf"{C}:\d+: .*'belo'", "^write below, or define belo above this line$"),
    Mutation("a function is not declared", VANILLA, C, "static bool is_busy(",
             "int above(void);\nint above(void) { return below(); }\n"
             "int below(void) { return 0; }\nstatic bool is_busy(", "driver sources",
             rf"{C}:\d+: .*'below'",
             rf"^declare it above this line, or in a header: .*{C}:\d+ defines it$"),
    Mutation("a function of C is not declared", VANILLA, C, "umakit_device *device;",
             'const size_t length = strlen("a");\n    umakit_device *device;\n    (void)length;',
             "driver sources", rf"{C}:\d+: .*declaration of function 'strlen'",
             "^include the header that declares it, or define it above this line$"),
    Mutation("a line is left to decide", VANILLA, C, "umakit_device *device;",
             '\n#error "decide how"\n    umakit_device *device;', "driver sources",
             rf"{C}:\d+: .*decide how", "^do what the line says, then remove it$"),
    Mutation("two sources define a function", VANILLA, "backend.py", f'sources=["{C}"]',
             f'sources=["{C}", "more.c"]', "link", "helper is defined twice: in .* and .*",
             "^rename one of them, or make one static$",
             also=(("more.c", "", "int helper(void);\nint helper(void) { return 1; }\n"),
                   (C, "static bool is_busy(",
                    "int helper(void);\nint helper(void) { return 2; }\nstatic bool is_busy("))),
    Mutation("two sources define what is called", VANILLA, "backend.py", f'sources=["{C}"]',
             f'sources=["{C}", "more.c"]', "link", f"{RUN} is defined twice: in .* and .*",
             "^rename one of them$",
             also=(("more.c", "", f"int {RUN}(void);\nint {RUN}(void) {{ return 1; }}\n"),)),
    Mutation("a name that is imported is misspelt", VANILLA, "backend.py", "import gen_includes",
             "import gen_include as gen_includes", "backend", "cannot import name 'gen_include'",
             "^define the name in the file that it is imported from, or correct the import$"),
    Mutation("a package is not installed", VANILLA, "passes.py", "from umakit import tir",
             "import umakit_no_such\nfrom umakit import tir", "backend", "umakit_no_such",
             "^pip install umakit_no_such, or what has that module$"),
    Mutation("no pattern is registered", VANILLA, "backend.py", "self._register_pattern(",
             "(lambda *given, **others: None)(", "patterns",
             "none is registered: all runs on the CPU", "^register one: _register_pattern",
             Status.WARNING),
    Mutation("a name in the code is none of the driver", VANILLA, "passes.py", "DRIVER =",
             'OTHER = "vanilla_accelerator_other"\nDRIVER =', "driver calls",
             rf"passes\.py:\d+: {VANILLA}_other is named and no file of the driver has it",
             "^correct the name if it is a function of the driver$", Status.WARNING),
    Mutation("a header of umakit is not included", VANILLA, C,
             '#include "umakit/mac_array_registers.h"\n', "", "driver sources",
             rf"{C}:\d+: 'UMAKIT_MAC_ARRAY_\w+' undeclared",
             '^#include "umakit/mac_array_registers.h", which declares it$'),
    Mutation("a header uses what it declares below", VANILLA, C, f'#include "{H}"',
             f'#include "{H}"\n#include "other.h"\n\nint later(void)\n{{\n    return 1;\n}}',
             "driver sources", r"other\.h:3: .*'later'",
             r"^declare it above this line: its declaration is in .*other\.h:\d+$",
             also=(("other.h", "", LATER), OTHER_HEADER)),
    Mutation("a header is nowhere", VANILLA, C, f'#include "{H}"',
             f'#include "{H}"\n#include "absent.h"', "driver sources", r"absent\.h",
             r"^write it, and name it: _register_driver\(headers=\[\.\.\., 'absent\.h'\]\)$"),
    Mutation("a function is defined in C++", VANILLA, C, "static bool is_busy(",
             "int helper(void);\nint use(void);\nint use(void) { return helper(); }\n"
             "static bool is_busy(", "link", rf"{C}:\d+: calls helper, which nothing defines",
             '^it is defined for C\\+\\+ only: declare it inside extern "C" { }: helper$',
             also=(("more.cc", "", "int helper();\nint helper() { return 1; }\n"),
                   ("backend.py", f'sources=["{C}"]', f'sources=["{C}", "more.cc"]'))),
    Mutation("code reads a memory that is not there", VANILLA, "backend.py",
             "        super().__init__()\n",
             "        super().__init__()\n        self.configuration.memory[0].name\n", "backend",
             r"IndexError.*backend\.py:\d+",
             "^this line reads accel.toml, which describes no memory: add a .* or correct the"),
    Mutation("nothing answers for a device", VANILLA, "accel.toml", 'simulator = "mac_array"', "",
             "link", f"calls {VANILLA}_device, which nothing defines",
             r"^on the host only a simulator defines it: set simulator in \[device\]", also=ON_CPU),
    Mutation("a device is included that is not there", VANILLA, "accel.toml",
             'simulator = "mac_array"', "", "driver sources", f"{VANILLA}_device.h",
             "^it belongs to umakit's simulators: set simulator in .*, or do not include it$",
             also=(*ON_CPU,
                   (C, "#include", f'#include "{VANILLA}_device.h"\n#include'),
                   (C, f"void *{VANILLA}_device(void);\n", ""),
                   (C, f"{VANILLA}_device()", "ifmap"))),
    Mutation("a call that no line names lacks an argument", VANILLA, H, "int iw, ", "",
             "driver calls", rf"{H}:\d+: .* with 9 arguments, it is declared with 8",
             "^make the call and the declaration agree, and the driver's source$",
             also=(("passes.py", f'"{RUN}"', '"vanilla_accelerator_" + "conv2dnchw"'),)),
    Mutation("a function is not declared in the header", VANILLA, H, RUN, "run_it",
             "driver calls", rf"passes\.py:\d+: pattern conv2d call {RUN}, which no header",
             rf"^declare it in {H}: .*{C}:\d+ defines it$"),
    Mutation("a Relax pass is no pass", VANILLA, "backend.py", "        self._register_tir_pass(",
             "        self._register_relax_pass(PassPhase.PRE_PARTITIONING, str)\n"
             "        self._register_tir_pass(", "passes",
             "str in PRE_PARTITIONING is no pass of TVM",
             "^register what tvm.transform.module_pass or"),
)  # fmt: skip


Mend = Callable[[Path, Path, Check], None]
"""Applies what a check says to a broken copy, given a healthy one too."""

PLACE = re.compile(r"([\w./-]+\.(?:py|c|h|toml)):(\d+)")


def last_line(name: str, lines: list[str], line: int) -> int:
    """The last line of a statement of Python or C."""
    if name.endswith(".py"):
        with contextlib.suppress(SyntaxError):
            nodes = ast.walk(ast.parse("".join(lines)))
            ends = [each.end_lineno or 0 for each in nodes
                    if isinstance(each, ast.stmt) and each.lineno == line
                    and not isinstance(each, ast.FunctionDef | ast.ClassDef)]  # fmt: skip
            return max(ends, default=line)
    if name.endswith(".h"):
        return next(n for n in range(line, len(lines) + 1) if re.search("[;{]", lines[n - 1]))
    return line


def named_lines(broken: Path, healthy: Path, check: Check) -> None:
    """Correct the statements that the check names, and the line above; without any, the file."""
    text = f"{check.where} {check.message} {check.mend}"
    places = {(Path(file).name, int(line)) for file, line in PLACE.findall(text)}
    if not places:
        places = {(Path(check.where).name, 0)}
    for name, line in sorted(places, reverse=True):
        old = (broken / name).read_text(encoding="utf-8").splitlines(keepends=True)
        new = (healthy / name).read_text(encoding="utf-8").splitlines(keepends=True)
        named = range(line - 2, last_line(name, old, line)) if line else range(len(old) + 1)
        lines: list[str] = []
        for _, a, b, c, d in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
            is_named = any(each in named for each in range(a, max(a + 1, b)))
            lines += new[c:d] if is_named else old[a:b]
        (broken / name).write_text("".join(lines), encoding="utf-8")


def written(name: str) -> Mend:
    """Write a file that is missing, or correct it where its lines are not named."""

    def apply(broken: Path, healthy: Path, check: Check) -> None:
        (broken / name).write_bytes((healthy / name).read_bytes())

    return apply


def made(name: str) -> Mend:
    """Write an empty file."""
    return lambda broken, healthy, check: (broken / name).touch()


def edited(file: str, old: str, new: str) -> Mend:
    """Replace all of a text in a file; words of the check by numbered groups of `found`."""

    def apply(broken: Path, healthy: Path, check: Check) -> None:
        path = broken / file
        text = path.read_text(encoding="utf-8")
        assert re.search(old, text), f"{file} has no {old}"
        path.write_text(re.sub(old, new, text), encoding="utf-8")

    return apply


def replaced(form: str, file: str) -> Mend:
    """Replace the name `old` by `new`, which a regular expression finds in what is to be done."""

    def apply(broken: Path, healthy: Path, check: Check) -> None:
        found = re.search(form, f"{check.message} -> {check.mend}")
        assert found, form
        text = (broken / file).read_text(encoding="utf-8")
        text, count = re.subn(rf"\b{re.escape(found['old'])}\b", found["new"], text)
        assert count
        (broken / file).write_text(text, encoding="utf-8")

    return apply


def inserted(file: str, text: str, form: str = "") -> Mend:
    """Put a text in front of a file; {0} is what a regular expression finds in what is to do."""

    def apply(broken: Path, healthy: Path, check: Check) -> None:
        found = re.search(form, check.mend)
        assert found, form
        before = (broken / file).read_text(encoding="utf-8")
        (broken / file).write_text(f"{text.format(found[0])}\n{before}", encoding="utf-8")

    return apply


def registered(kind: str) -> Mend:
    """Write the files into `_register_driver` as the check says."""

    def apply(broken: Path, healthy: Path, check: Check) -> None:
        found = re.search(rf"_register_driver\({kind}=\[\.\.\., '([^']+)'\]\)", check.mend)
        assert found
        edited("backend.py", rf"{kind}=\[\]", f'{kind}=["{found[1]}"]')(broken, healthy, check)

    return apply


def after(*mends: Mend) -> Mend:
    """Apply several, of which the check says that all are needed."""

    def apply(broken: Path, healthy: Path, check: Check) -> None:
        for mend in mends:
            mend(broken, healthy, check)

    return apply


MENDS: dict[str, tuple[Mend, ...]] = {
    "a source is deleted": (written(C),),
    "a header is deleted": (written(H),),
    "accel.toml is deleted": (written("accel.toml"),),
    "a module is deleted": (written("passes.py"),),
    "a function has another name in the header": (
        replaced(r"rename (?P<old>\w+) \(.*\) to (?P<new>\w+),", H),),
    "a function has another name in the source": (
        replaced(r"call (?P<new>\w+), .*rename (?P<old>\w+) \(", C),
        edited(C, r"\Z", f"\nint {RUN}(const float *a, const float *b, float *c, int d, "
               "int e, int f, int g, "
               f"int h, int i)\n{{\n    return {RUN}_2(a, b, c, d, e, f, g, h, i);\n}}\n"),),
    "a function has another name in the pass": (
        replaced(r"call (?P<old>\w+), .* write (?P<new>\w+) \(", "passes.py"),),
    "a key is misspelt": (replaced(r"write (?P<new>\w+) instead of (?P<old>\w+)", "accel.toml"),),
    "the simulator is left out": (edited("accel.toml", r"\[device\]",
                                         '[device]\nsimulator = "mac_array"'),),
    "a pass is a function": (edited("passes.py", "return replace_convolution",
                                    'return tir.prim_func_pass("It", replace_convolution)'),),
    "an include is missing in the source": (inserted(C, '#include "{}"', r"\w+\.h(?=:\d+\))"),),
    "a call lacks an argument": (written("passes.py"),),
    "the call of one pattern lacks an argument": (written("passes.py"),),
    "the time limit is too short": (written(C),),
    "the result is wrong": (written("passes.py"),),
    "two headers define a name": (
        edited("other.h", rf"{VANILLA}_device", "another_device"),
        edited("other.h", ".*;", ""),),
    "a header is read twice": (inserted("other.h", "#pragma once"),),
    "a header lacks one of umakit": (inserted("other.h", "{}", r"#include \S+(?=,)"),),
    "a type is not defined": (
        edited(C, "(?=static word_of_four)", "typedef struct word { int x; } word_of_four;\n"
               "word_of_four another(void);\n"),),
    "a name is one of umakit": (edited(C, r"int umakit_device_wait\(void", "int my_wait(void"),),
    "a call has too few arguments": (edited(C, r"add_two\(a\)", "add_two(a, 1)"),),
    "a function is declared below": (
        edited(C, "belo\\(", "below("),
        edited(C, "(?=int below\\(void\\);)", "static int belo(void) { return 1; }\n"),),
    "a function of umakit is misspelt": (
        edited(C, "umakit_device_barier", "umakit_device_barrier"),),
    "two sources define a function": (
        edited("more.c", "helper", "helper_2"),
        edited("more.c", r"int helper\(void\);\nint", "static int unused(void);\nstatic int"),),
    "two sources define what is called": (edited("more.c", RUN, "another"),),
    "a name that is imported is misspelt": (
        edited("backend.py", "import gen_include as", "import gen_includes as"),
        edited("codegen.py", r"\Z", "\n\ngen_include = gen_includes\n"),),
    "a name in the code is none of the driver": (
        edited("passes.py", "vanilla_accelerator_other", RUN),),
    "a header of umakit is not included": (inserted(C, "{}", r"#include \S+(?=,)"),),
    "a header uses what it declares below": (
        edited("other.h", r"(?s)(.*)(int later\(void\);\n)", r"\2\1"),),
    "a header is nowhere": (after(edited("backend.py", rf'headers=\["{H}"\]',
                                         f'headers=["{H}", "absent.h"]'), made("absent.h")),),
    "a function is defined in C++": (
        edited("more.cc", r"int helper\(\);", 'extern "C" { int helper(); }'),),
    "code reads a memory that is not there": (
        named_lines,
        edited("accel.toml", r"\Z", '\n[[memory]]\nname = "sram"\nsize = 64\n'),),
    "nothing answers for a device": (edited("accel.toml", r"\[device\]",
                                            '[device]\nsimulator = "mac_array"'),),
    "a device is included that is not there": (
        edited("accel.toml", r"\[device\]", '[device]\nsimulator = "mac_array"'),
        edited(C, f'#include "{VANILLA}_device.h"\n', ""),),
    "a call that no line names lacks an argument": (written(H),),
    "a function is not declared in the header": (
        edited(H, "(?=UMAKIT_MUST_USE int run_it)", f"int {RUN}(const float *a, const float *b, "
               "float *c, int d, int e, int f, int g, int h, int i);\n"),),
    "a Relax pass is no pass": (
        edited("backend.py", "PRE_PARTITIONING, str",
               "PRE_PARTITIONING, __import__('tvm').relax.transform.DeadCodeElimination()"),),
    "an include does not exist": (replaced(r"(?P<old>conv2dnch\.h).* include (?P<new>\S+)$", C),),
    "the header is not registered": (registered("headers"),),
    "the source is not registered": (registered("sources"),),
    "the source calls what is not there": (edited(C, r"\Z",
                                           "\nint helper(void)\n{\n    return 0;\n}\n"),),
    "a memory has another name": (
        edited("passes.py", '"scratchpad"', '"sram"'),
        edited("accel.toml", 'name = "sram"', 'name = "scratchpad"'),),
    "code uses a memory of another name": (edited("passes.py", '"spm"', '"scratchpad"'),),
    "a transfer function has another name in the header": (
        replaced(r"rename (?P<old>\w+) \(.*\) to (?P<new>\w+),", SH),),
    "the completion is not defined": (
        replaced(r"call (?P<new>\w+), .*rename (?P<old>\w+) \(", CC),),
    "a copy is not declared": (after(
        edited(SH, r"(#endif.*\s*)\Z", r"int32_t dma_on(void *a, int32_t b, int32_t c);\n\1"),
        edited(SC, r"\Z", "\nint32_t dma_on(void *a, int32_t b, int32_t c)\n{\n    (void)a;\n"
               "    return b + c;\n}\n")),),
    "a source is registered by another name": (edited("backend.py", "conv2dnhwc.c", C),),
    "a block has another name": (edited("passes.py", '"computes": compute', '"compute": compute'),),
    "a header lacks one of C": (inserted("other.h", "{}", r"#include <\S+>"),),
    "a function is not declared": (edited(C, "(?=int above\\(void\\);)", "int below(void);\n"),),
    "a function of C is not declared": (inserted(C, "#include <string.h>"),),
    "a line is left to decide": (edited(C, '#error .*', ""),),
    "no pattern is registered": (
        edited("backend.py", r"\(lambda .*None\)\(", "self._register_pattern("),),
}  # fmt: skip
"""By the label of a fault, how each alternative of what is to be done is applied; all other faults
are mended by correcting the lines that are named."""


def copied(name: str, folder: Path) -> Path:
    """Return a copy of a reference backend."""
    place = folder / name
    shutil.copytree(BACKENDS / name, place, ignore=shutil.ignore_patterns("__pycache__"))
    return place
