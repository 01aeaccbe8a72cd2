//! Programs: what a strategy compiles a model to, one list of instructions per rank.
use crate::comm::Counts;
use crate::error::{check, filled, made};
use crate::{number, text, Axis, Result};
use gsel_sys as sys;
use std::marker::PhantomData;

/// A program, parsed or borrowed from a trainer or pipeline for `'a`. `Display` is its text, which parses back.
pub struct Program<'a> {
    program: *const sys::gsel_program,
    is_owned: bool,
    borrowed: PhantomData<&'a ()>,
}
// C allows any thread.
unsafe impl Send for Program<'_> {}
unsafe impl Sync for Program<'_> {}

impl Program<'static> {
    /// Reads a program's text; `name` stands for the file in messages.
    pub fn parse(program: &str, name: &str) -> Result<Program<'static>> {
        let program =
            made(|out, error| unsafe { sys::gsel_program_parse(text::given(program), text::given(name), out, error) })?;
        Ok(Program {
            program,
            is_owned: true,
            borrowed: PhantomData,
        })
    }
}

impl<'a> Program<'a> {
    pub(crate) fn borrowed(program: *const sys::gsel_program) -> Program<'a> {
        Program {
            program,
            is_owned: false,
            borrowed: PhantomData,
        }
    }
    /// The text form.
    pub fn text(&self) -> &str {
        text::borrowed(self, unsafe { sys::gsel_program_text(self.program) })
    }
    /// Which part of each parameter and value this rank has, as a table for people.
    pub fn placements(&self) -> &str {
        text::borrowed(self, unsafe { sys::gsel_program_placements(self.program) })
    }
    /// Number of instructions of a step.
    pub fn len(&self) -> usize {
        unsafe { sys::gsel_program_length(self.program) as usize }
    }
    /// Whether a step has no instruction.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Instruction i; fields that its kind (`gsel::sys::GSEL_INSTR_*`) does not use are -1.
    pub fn instr(&self, i: usize) -> Result<sys::gsel_instr> {
        let mut out = sys::gsel_instr {
            kind: 0,
            layer: -1,
            value: -1,
            microbatch: -1,
            bucket: -1,
            axis: -1,
            peer: -1,
            flags: 0,
        };
        let i = i32::try_from(i).unwrap_or(i32::MAX);
        check(|error| unsafe { sys::gsel_program_instr(self.program, i, &mut out, error) })?;
        Ok(out)
    }
    /// Bytes sent and calls made for one kind of instruction on one axis in a step, by closed form; step -1: setup.
    pub fn traffic(&self, step: i64, kind: i32, axis: Axis) -> Result<Counts> {
        filled(|out, error| unsafe { sys::gsel_program_traffic(self.program, step, kind, axis.0, out, error) })
            .map(|out| Counts::of(&out))
    }
}

/// Checks the programs of all ranks together, in rank order. [`Code::PROGRAM`](crate::Code::PROGRAM) names rank, instruction
/// and line.
pub fn verify(programs: &[&Program<'_>]) -> Result<()> {
    let raw: Vec<_> = programs.iter().map(|program| program.program).collect();
    check(|error| unsafe { sys::gsel_program_verify(raw.as_ptr(), number(raw.len()), error) })
}

impl std::fmt::Display for Program<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if self.is_owned {
            unsafe { sys::gsel_program_free(self.program as *mut _) }
        }
    }
}
