# SPDX-License-Identifier: Apache-2.0
"""The section `[access]` of a register map: how a device answers what a driver should not do."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Answer = Literal["", "ignored", "zero", "error"]


class Access(BaseModel):
    """How a device answers accesses that drivers should not make.

    An answer is one of

    - `ignored`: a write changes nothing, a read gives anything,
    - `zero`: a write changes nothing, a read gives 0,
    - `error`: as `zero`, and the register `error` is not 0 from then on, until 1 is written to
      `clear`,
    - empty: unknown, so that nothing relies on it.

    Attributes:
        holes: answer to an access of an offset at which there is no register.
        wrong: answer to a write of what is read only, and to a read of what is write only.
        reserved: answer to a write of ones to bits that a write does not change. `ignored`: the
            others are written; `error`: none is.
        busy: what registers do that are written while an engine works. `kept`: they keep what is
            written, for the next command, and the work goes on with what they held before.
        outside: answer to a command that uses numbers beyond the limits of registers and fields:
            `error`; empty: unknown.
        error, clear: `REGISTER` or `REGISTER.FIELD`; empty: `error` and `stop` of `[job]`.
        size: bytes from the first register to the end of the last hole, or None: the size of all
            registers, rounded up to a power of two.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    holes: Answer = ""
    wrong: Answer = ""
    reserved: Literal["", "ignored", "error"] = ""
    busy: Literal["", "kept"] = ""
    outside: Literal["", "error"] = ""
    error: str = ""
    clear: str = ""
    size: Annotated[int, Field(gt=0, le=1 << 20, multiple_of=4)] | None = None

    @property
    def reports_errors(self) -> bool:
        """Whether an answer is `error`."""
        return "error" in (self.holes, self.wrong, self.reserved, self.outside)

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if self.clear and not self.error:
            raise ValueError("clear is given without error")
        return self
