//! What goes to standard error while a run goes on.

use std::io::IsTerminal as _;

use crate::commands::complain;

/// One line that is written over on a terminal, a line each time elsewhere.
pub(super) struct Progress {
    quiet: bool,
    shown: bool,
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Self {
        Self { quiet, shown: false }
    }

    /// A line that stays.
    pub(super) fn note(&mut self, line: &str) {
        self.end();
        if !self.quiet {
            complain(&format!("{line}\n"));
        }
    }

    /// A line that the next one takes the place of.
    pub(super) fn show(&mut self, line: &str) {
        if self.quiet {
            return;
        }
        if std::io::stderr().is_terminal() {
            complain(&format!("\r{line}\x1b[K"));
            self.shown = true;
        } else {
            complain(&format!("{line}\n"));
        }
    }

    /// Leaves the line that is written over.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            complain("\n");
        }
    }
}
