//! The choices that several kinds of load have.

use clap::ValueEnum;
use load::rate::Arrivals;

/// The output format of a result.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ReportFormat {
    /// A table for people.
    Table,
    /// For programs, and for `bench report`.
    Json,
}

/// The gaps between requests of the open loop.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ArrivalsArgument {
    /// Equal gaps.
    Constant,
    /// Exponential gaps.
    Poisson,
}

impl ArrivalsArgument {
    /// Returns the arrivals of the load.
    pub(super) fn arrivals(self) -> Arrivals {
        match self {
            Self::Constant => Arrivals::Constant,
            Self::Poisson => Arrivals::Poisson,
        }
    }
}
