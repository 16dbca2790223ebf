# SPDX-License-Identifier: Apache-2.0
"""Checks of functions called by generated code: their declarations fit, and they link."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from umakit.codegen import driver_names
from umakit.codegen.driver_headers import read_headers
from umakit.devices import build
from umakit.devices.build import call_compiler, file_argument
from umakit.devices.libraries import check_compiled, linker_arguments
from umakit.devices.objects import compiling, with_shared_objects
from umakit.devices.simulators import check_simulators, missing_table, simulator_objects
from umakit.errors import UmakitError, short_path
from umakit.library.layout import RUNTIME
from umakit.machine.simulator_config import CXX_SUFFIXES
from umakit.registration.backend import Backend
from umakit.registration.code import included_text, texts_in
from umakit.text.spelling import closest
from umakit.tools.doctor.checks import Check, any_error, doubtful, failed, ok, refused, skipped
from umakit.tools.doctor.compiling import (
    DEFINED_TWICE,
    UNDEFINED,
    UNKNOWN_NAME,
    StagedDriver,
    Symbols,
    compiled,
    names_in,
    run_linker,
    symbols_of,
)
from umakit.tools.doctor.driver import PROGRAM, fault_of
from umakit.tools.doctor.probes import SIMULATOR, Probes, staged_simulators

CALLS, LINK = "driver calls", "link"

TRANSFER_ARGUMENTS, COMPLETION_ARGUMENTS = 3, 0


class CallCheck:
    """Checks of the functions that a backend's patterns call."""

    def __init__(self, staged: StagedDriver, probes: Probes) -> None:
        self._staged, self._backend = staged, staged.backend
        self._calls = _all_calls(staged.backend, probes)
        self._texts = texts_in(staged.backend.folder)
        self._linked: list[str] = []
        self._table: Path | None = None

    def declared(self) -> list[Check]:
        """Check that functions are declared with as many arguments as in their calls."""
        try:
            includes = self._includes()
        except UmakitError as error:
            return [refused(CALLS, error)]
        if self._backend.codegen.replace_call_extern is not None:
            self._calls = {}  # its text of the calls is compiled with the first network
        names = sorted({name for name, _ in self._calls})
        undeclared, faults = self._compile_table(includes, names)
        if faults:
            return faults
        faults = [
            failed(
                CALLS,
                f"{self._callers(name)} call {name}, which no header of the driver declares",
                where=self._texts.get(name, ""),
                mend=self._mend_of_undeclared(name),
            )
            for name in undeclared
        ]
        faults += self._arity_faults(includes, undeclared)
        faults += self._unknown_texts(includes, names) if not any_error(faults) else []
        if any_error(faults):
            return faults
        count = len(names)
        return [*faults, ok(CALLS, f"{count} of {count} functions are declared as they are called")]

    def _includes(self) -> str:
        hook = self._backend.codegen.includes
        text = "" if hook is None else included_text(self._backend, hook)
        headers = [f'#include "{path}"' for path in driver_names.library_headers(self._backend)]
        return "\n".join([*headers, driver_names.exported_includes(self._backend, text)])

    def _compile_table(self, includes: str, names: Sequence[str]) -> tuple[list[str], list[Check]]:
        undeclared: list[str] = []
        for _ in range(2):
            self._linked = [name for name in names if name not in undeclared]
            place = self._staged.folder / PROGRAM
            place.parent.mkdir(exist_ok=True)  # a backend without a driver has no files there
            place.write_text(_table(includes, self._linked), encoding="utf-8")
            output, messages = compiled(
                place, self._staged.device, self._staged.folder, self._staged.words
            )
            if not messages:
                self._table = output
                break
            found = {a or b for a, b in UNKNOWN_NAME.findall(messages)} & {*names}
            if not found or undeclared:
                folder = short_path(self._backend.folder)
                places = (place for text, place in self._texts.items() if "#include" in text)
                otherwise = next(places, folder)
                fault = fault_of(CALLS, messages, self._staged, otherwise)
                return [], [fault]
            undeclared = sorted(found)
        return undeclared, []

    def _mend_of_undeclared(self, name: str) -> str:
        staged, headers = self._staged, ", ".join(self._backend.driver.headers)
        place = headers or "a header, and name that in _register_driver and _register_codegen"
        close, defined = closest(name, self._declared_names()), staged.definition_of(name)
        declared = staged.line_of(close, staged.headers) if close else ""
        if defined and close and not staged.definition_of(close):
            return f"rename {close} ({declared}) to {name}, which {defined} defines"
        if defined:
            return f"declare it in {place}: {defined} defines it"
        if close and staged.definition_of(close):
            return f"write {close} ({declared}), which no pattern calls"
        return f"declare it in {place}, and define it in a source of the driver"

    def _arity_faults(self, includes: str, undeclared: Sequence[str]) -> list[Check]:
        declared = read_headers([*self._header_texts(), includes.encode()]).functions
        faults = []
        for (name, count), patterns in sorted(self._calls.items()):
            parameters = declared.get(name)
            if name in undeclared or parameters is None or len(parameters) == count:
                continue
            called = self._texts.get(name, "")
            message = (
                f"{_listed(patterns)} call {name} with {_arguments(count)}, "
                f"it is declared with {_arguments(len(parameters))}"
            )
            mend = "make the call and the declaration agree, and the driver's source"
            if called:
                mend = f"make it and the call in {called} agree, and the driver's source"
            where = self._staged.line_of(name, self._staged.headers) or called
            faults.append(failed(CALLS, message, where=where, mend=mend))
        return faults

    def _unknown_texts(self, includes: str, called: Sequence[str]) -> list[Check]:
        start = f"{self._backend.target_name}_"
        files = "\n".join([includes, *self._staged.texts().values()])
        return [
            doubtful(
                CALLS,
                f"{text} is named and no file of the driver has it",
                where=place,
                mend="correct the name if it is a function of the driver",
            )
            for text, place in self._texts.items()
            if text.startswith(start) and re.fullmatch(r"\w+[^\W_]", text) and text not in called
            if not re.search(rf"\b{text}\b", files) and self._backend.driver.sources
            and text not in {f"{start}{pattern.name}" for pattern in self._backend.patterns}
        ]  # fmt: skip

    def _header_texts(self) -> list[bytes]:
        texts, headers = self._staged.texts(), self._staged.headers
        return [text.encode() for path, text in texts.items() if path in headers]

    def _declared_names(self) -> set[str]:
        others = {name for name, _ in self._calls}
        others.add(f"{self._backend.target_name}_device")  # the simulator or the board defines it
        return {*read_headers(self._header_texts()).functions} - others

    def _callers(self, name: str) -> str:
        return _listed({who for (each, _), names in self._calls.items() if each == name
                        for who in names})  # fmt: skip

    # --- linking ------------------------------------------------------------------------------

    def linked(self) -> list[Check]:
        """Link the driver with all parts of a library, and report undefined names."""
        staged = self._staged
        exported = partial(driver_names.exported_path, self._backend)
        sources = self._backend.driver.sources
        missing = [name for name in sources if f"src/{exported(name)}" not in staged.objects]
        if missing or self._table is None:
            what = f"{', '.join(missing)} cannot be compiled" if missing else "see driver calls"
            return [skipped(LINK, f"was not tried: {what}")]
        try:
            messages = self._link(self._table)
        except UmakitError as error:
            return [self._simulator_fault(error)]
        if not messages:
            return [ok(LINK, "each function that the driver calls is defined")]
        symbols = {path: symbols_of(output) for path, output in staged.objects.items()}
        faults = [self._undefined_fault(name, symbols) for name in names_in(messages, UNDEFINED)]
        twice = names_in(messages, DEFINED_TWICE)
        faults += [self._double_fault(name, symbols) for name in twice]
        return faults or [fault_of(LINK, messages, staged, short_path(self._backend.folder))]

    def _simulator_fault(self, error: UmakitError) -> Check:
        name, folder = self._backend.target_name, short_path(self._backend.folder)
        if not error.what.startswith(f"the simulator of the backend {name} "):
            return refused(LINK, error)
        what = f"{folder}/{error.where}: {error.what.partition(' says: ')[2]}"
        mend = "correct this line, or what [simulator] of accel.toml says about include and defines"
        return failed(SIMULATOR, what, mend=mend)

    def _link(self, table: Path) -> str:
        staged, device = self._staged, self._staged.device
        compiler = [*device.compiler(), *build.FLAGS]
        flags = device.program_flags()
        sources = [*self._other_sources(), *device.platform_sources(RUNTIME)]

        def run(command: list[str]) -> None:
            call_compiler(command, compiler[0], staged.folder, device)

        def run_any(command: Sequence[str], arguments: list[str]) -> None:
            call_compiler([*command, *arguments], command[0], staged.folder, device)

        simulators = staged_simulators(staged)
        check_simulators(simulators, device)
        names = [file_argument(source) for source in sources]
        others = with_shared_objects(sources, compiler, flags, run)
        objects = [
            self._object(number, file, run) if file_argument(file) in names else file
            for number, file in enumerate(others)
        ]
        objects += simulator_objects(simulators, flags, device, run_any)
        files = [*staged.objects.values(), table, *objects]
        libraries = linker_arguments(staged.compiled)
        libraries += [word for each in simulators for word in each.linking()]
        if staged.library is not None:
            libraries += [f"-l{name}" for name in staged.library.files.link]
        brought = [*staged.compiled, *(path for each in simulators for path in each.compiled)]
        output = ["-o", str(staged.folder / "linked"), *libraries, "-lm"]
        is_cxx = any(each.is_cxx for each in simulators)
        is_cxx |= any(name.endswith(CXX_SUFFIXES) for name in self._backend.driver.sources)
        is_cxx |= staged.library is not None and staged.library.is_cxx
        is_cxx |= bool(check_compiled(brought, device, run_any))
        arguments = [*flags, *map(file_argument, files), *output]
        return run_linker(device, arguments, staged.folder, is_cxx)

    def _object(self, number: int, source: Path, run: Callable[[list[str]], None]) -> Path:
        device, output = self._staged.device, self._staged.folder / f"kit{number}.o"
        flags = compiling([*build.FLAGS, *device.program_flags()])
        run([*device.compiler(), *flags, "-c", str(source), "-o", str(output)])
        return output

    def _other_sources(self) -> list[Path]:
        own = {self._staged.folder / path for path in self._staged.places}
        found = sorted((self._staged.folder / "src").rglob("*.c"))
        return [p for p in found if p not in own and not p.name.startswith("umakit_doctor")]

    def _undefined_fault(self, name: str, symbols: Mapping[str, Symbols]) -> Check:
        users = [path for path, each in symbols.items() if name in each.undefined]
        paths = [self._staged.places[path] for path in users]
        where = self._staged.line_of(name, paths) if paths else ""
        if name in self._linked:
            message = f"{self._callers(name)} call {name}, which no source of the driver defines"
            where = where or self._staged.line_of(name, self._staged.headers)
            where = where or self._texts.get(name, "")
        else:
            message = f"calls {name}, which nothing defines"
        return failed(LINK, message, where=where, mend=self._mend(name, symbols))

    def _mend(self, name: str, symbols: Mapping[str, Symbols]) -> str:
        backend = self._backend
        if name == f"{backend.target_name}_simulator":
            return missing_table(f"undefined reference to {name}")
        of_device = name.startswith("umakit_") or name == f"{backend.target_name}_device"
        if of_device and not driver_names.is_simulated(backend):
            return (
                "on the host only a simulator defines it: set simulator in [device] of "
                "accel.toml; on a board define it in the board's own C"
            )
        sources = [p for p in backend.folder.rglob("*.c*") if p.suffix in (".c", *CXX_SUFFIXES)]
        for path in sorted(sources):
            text = path.read_text(encoding="utf-8", errors="replace")
            defined = re.search(rf"\b{re.escape(name)}\s*\([^;{{}}]*\)\s*\{{", text)
            if path not in self._staged.places.values() and defined:
                unnamed = path.relative_to(backend.folder).as_posix()
                return f"{unnamed} defines it: _register_driver(sources=[..., {unnamed!r}])"
        if any(re.match(rf"_Z\d+{name}", s) for each in symbols.values() for s in each.defined):
            return f'it is defined for C++ only: declare it inside extern "C" {{ }}: {name}'
        defined_names = {s for each in symbols.values() for s in each.defined}
        close = closest(name, defined_names - {*self._linked})
        if close:
            place = self._staged.line_of(close)
            return f"rename {close} ({place}) if it is that, or define {name}"
        if backend.configuration.sources is not None:
            return "name the file that defines it in files of [sources], or correct the call"
        return "define it in a source of the driver, or name a library in sources that has it"

    def _double_fault(self, name: str, symbols: Mapping[str, Symbols]) -> Check:
        users = [
            short_path(self._staged.places[path])
            for path, each in symbols.items()
            if name in each.defined
        ]
        files = " and ".join(users) if len(users) > 1 else f"{''.join(users)} and umakit"
        is_shared = name in self._linked or any(name in each.undefined for each in symbols.values())
        mend = "rename one of them" + ("" if is_shared else ", or make one static")
        return failed(LINK, f"{name} is defined twice: in {files}", mend=mend)


def _table(includes: str, names: Sequence[str]) -> str:
    functions = "".join(f"    (umakit_doctor_function)&{name},\n" for name in names)
    return (
        f"{includes}\n\ntypedef void (*umakit_doctor_function)(void);\n"
        "extern umakit_doctor_function const umakit_doctor_functions[];\n"
        "umakit_doctor_function const umakit_doctor_functions[] = {\n"
        f"{functions}    (umakit_doctor_function)0,\n}};\n\n"
        "int main(void)\n{\n"
        f"    return umakit_doctor_functions[{len(names)}] != (umakit_doctor_function)0;\n}}\n"
    )


def _all_calls(backend: Backend, probes: Probes) -> dict[tuple[str, int], set[str]]:
    calls = {call: {f"pattern {name}" for name in names} for call, names in probes.calls.items()}
    transfers = backend.transfers
    registered = [(name, TRANSFER_ARGUMENTS, "_register_transfers")
                  for name in ((transfers.load, transfers.store) if transfers else ())]  # fmt: skip
    if backend.completion is not None:
        registered.append((backend.completion, COMPLETION_ARGUMENTS, "_register_completion"))
    for name, count, who in registered:
        if not any(each == name for each, _ in calls):
            calls[name, count] = {who}
    return calls


def _arguments(count: int) -> str:
    return "1 argument" if count == 1 else f"{count or 'no'} arguments"


def _listed(names: set[str]) -> str:
    ordered = sorted(names)
    if len(ordered) > 2:
        return f"{ordered[0]} and {len(ordered) - 1} other patterns"
    return " and ".join(ordered) or "patterns"
