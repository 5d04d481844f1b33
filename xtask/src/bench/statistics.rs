//! The middle of some measurements, and how far they spread.

/// Some measurements of one thing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sample(Vec<f64>);

impl Sample {
    pub(super) fn push(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    /// The middle one; of an even number, the mean of the two in the middle. Zero where nothing was measured.
    pub(super) fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        match self.0.len() {
            0 => 0.0,
            length if length % 2 == 1 => self.0[middle],
            _ => (self.0[middle - 1] + self.0[middle]) / 2.0,
        }
    }

    pub(super) fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(0.0)
    }

    pub(super) fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(0.0)
    }

    /// `median (smallest–largest)`, with so many decimals.
    pub(super) fn show(&self, decimals: usize) -> String {
        let (low, high) = (self.min(), self.max());
        format!("{:.decimals$} ({low:.decimals$}–{high:.decimals$})", self.median())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        for (values, median, shown) in [
            (vec![], 0.0, "0.0 (0.0–0.0)"),
            (vec![2.0], 2.0, "2.0 (2.0–2.0)"),
            (vec![9.0, 1.0, 2.0], 2.0, "2.0 (1.0–9.0)"),
            (vec![4.0, 1.0, 2.0, 3.0], 2.5, "2.5 (1.0–4.0)"),
        ] {
            let mut sample = Sample::default();
            values.into_iter().for_each(|value| sample.push(value));
            assert_eq!((sample.median(), sample.show(1).as_str()), (median, shown));
        }
    }
}
