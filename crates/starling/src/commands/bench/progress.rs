//! Progress lines on standard error during a run.

use std::io::IsTerminal as _;

use crate::commands::print_error;

/// A line that is overwritten on a terminal; elsewhere each update is a line of its own.
pub(super) struct Progress {
    is_quiet: bool,
    is_line_open: bool,
}

impl Progress {
    pub(super) fn new(is_quiet: bool) -> Self {
        Self { is_quiet, is_line_open: false }
    }

    /// Prints a line that stays.
    pub(super) fn note(&mut self, line: &str) {
        self.end();
        if !self.is_quiet {
            print_error(&format!("{line}\n"));
        }
    }

    /// Prints a line that the next one overwrites.
    pub(super) fn show(&mut self, line: &str) {
        if self.is_quiet {
            return;
        }
        if std::io::stderr().is_terminal() {
            print_error(&format!("\r{line}\x1b[K"));
            self.is_line_open = true;
        } else {
            print_error(&format!("{line}\n"));
        }
    }

    /// Ends the line that would be overwritten.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.is_line_open) {
            print_error("\n");
        }
    }
}
