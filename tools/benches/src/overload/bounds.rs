//! The bounds of a measurement, the figures that were found, and whether they hold.

use crate::reports::verdict;

/// The direction of a bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// One figure and its bound.
#[derive(Debug, PartialEq)]
struct CheckedFigure {
    what: String,
    found: f64,
    bound: Bound,
    unit: &'static str,
}

/// The figures of one measurement.
#[derive(Debug, Default)]
pub(super) struct Bounds(Vec<CheckedFigure>);

impl Bound {
    fn holds(self, found: f64) -> bool {
        // A figure that is not a number holds no bound.
        match self {
            Self::AtLeast(least) => found >= least,
            Self::AtMost(most) => found <= most,
        }
    }
}

impl Bounds {
    /// Adds a figure. The unit begins with the space that separates it from the number, if there is one.
    pub(super) fn check(
        &mut self,
        what: impl Into<String>,
        found: f64,
        bound: Bound,
        unit: &'static str,
    ) {
        self.0.push(CheckedFigure { what: what.into(), found, bound, unit });
    }

    /// Formats all figures as a table.
    pub(super) fn table(&self) -> String {
        let mut table = "\n| | found | bound | met |\n|---|---|---|---|\n".to_owned();
        for CheckedFigure { what, found, bound, unit } in &self.0 {
            let limit = match bound {
                Bound::AtLeast(least) => format!("at least {least}{unit}"),
                Bound::AtMost(most) => format!("at most {most}{unit}"),
            };
            let met = verdict(bound.holds(*found));
            table.push_str(&format!("| {what} | {found:.2}{unit} | {limit} | {met} |\n"));
        }
        table
    }

    /// Returns the figures that exceed their bounds.
    pub(super) fn unmet(&self) -> impl Iterator<Item = &str> {
        let unmet = self.0.iter().filter(|figure| !figure.bound.holds(figure.found));
        unmet.map(|figure| figure.what.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_beyond_their_bounds_are_named() {
        let mut bounds = Bounds::default();
        bounds.check("goodput", 96.0, Bound::AtLeast(95.0), " %");
        bounds.check("p99", 3.01, Bound::AtMost(3.0), " times");
        bounds.check("nothing measured", f64::NAN, Bound::AtMost(1.0), "");
        assert_eq!(bounds.unmet().collect::<Vec<_>>(), ["p99", "nothing measured"]);
        let table = bounds.table();
        assert!(table.contains("| goodput | 96.00 % | at least 95 % | yes |"), "{table}");
        assert!(table.contains("| p99 | 3.01 times | at most 3 times | NO |"), "{table}");
    }
}
